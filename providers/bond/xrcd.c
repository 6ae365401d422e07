/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* XRC domains: the primary's (design 2). */
#include <errno.h>
#include <stdlib.h>

#include "bond.h"
#include "objects.h"
#include "passthru.h"

struct ibv_xrcd *bond_open_xrcd(struct ibv_context *ctx, struct ibv_xrcd_init_attr *attr)
{
	struct bond_xrcd *xrcd = calloc(1, sizeof(*xrcd));

	if (!xrcd) {
		errno = ENOMEM;
		return NULL;
	}
	xrcd->mxrcd = ibv_open_xrcd(bond_primary(to_bond_context(ctx)), attr);
	if (!xrcd->mxrcd) {
		free(xrcd);
		return NULL;
	}
	xrcd->vxrcd.xrcd.context = ctx;
	return &xrcd->vxrcd.xrcd;
}

int bond_close_xrcd(struct ibv_xrcd *ibxrcd)
{
	struct bond_xrcd *xrcd = to_bond_xrcd(ibxrcd);
	int ret = ibv_close_xrcd(xrcd->mxrcd);

	if (!ret)
		free(xrcd);
	return ret;
}
