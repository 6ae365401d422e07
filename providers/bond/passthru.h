/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Objects that wrap one of the primary's and add nothing: their structs. */
#ifndef BOND_PASSTHRU_H
#define BOND_PASSTHRU_H

#include "bond.h"

struct bond_xrcd {
	struct verbs_xrcd vxrcd;
	struct ibv_xrcd *mxrcd;
};

struct bond_mw {
	struct ibv_mw mw;
	struct ibv_mw *mmw;
};

static inline struct bond_xrcd *to_bond_xrcd(struct ibv_xrcd *xrcd)
{
	return bond_container_of(xrcd, struct bond_xrcd, vxrcd.xrcd);
}

static inline struct bond_mw *to_bond_mw(struct ibv_mw *mw)
{
	return bond_container_of(mw, struct bond_mw, mw);
}

#endif
