/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Memory windows: the primary's; what a window opens is reached on path 0 (design 2). */
#include <errno.h>
#include <stdlib.h>

#include "bond.h"
#include "objects.h"
#include "passthru.h"

struct ibv_mw *bond_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct bond_mw *mw = calloc(1, sizeof(*mw));

	if (!mw) {
		errno = ENOMEM;
		return NULL;
	}
	mw->mmw = ibv_alloc_mw(bond_pd_real(pd)->mpd[0], type);
	if (!mw->mmw) {
		free(mw);
		return NULL;
	}
	mw->mw.context = pd->context;
	mw->mw.pd = pd;
	mw->mw.rkey = mw->mmw->rkey;
	mw->mw.handle = mw->mmw->handle;
	mw->mw.type = type;
	return &mw->mw;
}

int bond_dealloc_mw(struct ibv_mw *ibmw)
{
	struct bond_mw *mw = to_bond_mw(ibmw);
	int ret = ibv_dealloc_mw(mw->mmw);

	if (!ret)
		free(mw);
	return ret;
}

/*
 * A type 1 bind posts a WR of its own into the member's queue, past our account of it; a type 2
 * bind is a WR of the application. Both wait for the part that gives them a place in the queue.
 */
int bond_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	(void)qp;
	(void)mw;
	(void)bind;
	return EOPNOTSUPP;
}
