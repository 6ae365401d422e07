/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A QP in error; see fence.c. The sq_lock is not held by the callers of these. */
#ifndef BOND_FENCE_H
#define BOND_FENCE_H

#include "bond.h"

/* The QP is to be in ERR, whatever it was doing: all paths go there, everything is flushed. */
void bond_qp_to_error(struct bond_qp *qp);

struct qp_quiet {
	bool error, fenced, busy_state;
	uint32_t error_seq;
};

/*
 * The members' QPs are about to go, while others may poll the QP's CQs: from here on nothing is
 * posted to them and none is fenced. Where they stay after all, unquiet with what was returned.
 */
struct qp_quiet bond_qp_quiet(struct bond_qp *qp);
void bond_qp_unquiet(struct bond_qp *qp, struct qp_quiet was);

#endif
