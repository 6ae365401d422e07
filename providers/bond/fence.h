/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A QP in error; see fence.c. The sq_lock is not held by the callers of these. */
#ifndef BOND_FENCE_H
#define BOND_FENCE_H

#include "bond.h"

/* The QP is to be in ERR, whatever it was doing: all paths go there, everything is flushed. */
void bond_qp_to_error(struct bond_qp *qp);

#endif
