/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which member is joined to which of the peer's, and the QPs in between. All with qp->lock held.
 * Leader and follower as in ctrl.h; errnos as its callbacks return them.
 */
#ifndef BOND_PAIR_H
#define BOND_PAIR_H

#include "bond.h"
#include "wire.h"

/* This side's members and settings, without paths. */
void pair_describe(struct bond_qp *qp, struct wire_qp_desc *desc);
int pair_lead(struct bond_qp *qp, const struct wire_qp_desc *peer, struct wire_qp_desc *mine);
int pair_follow(struct bond_qp *qp, const struct wire_qp_desc *peer, struct wire_qp_desc *mine,
		uint32_t *ok_mask);
int pair_answer(struct bond_qp *qp, const struct wire_qp_desc *peer, uint32_t *ok_mask);
void pair_ready(struct bond_qp *qp, uint32_t path_mask);

#endif
