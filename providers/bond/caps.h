/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What bond0 can do, see caps.c. */
#ifndef BOND_CAPS_H
#define BOND_CAPS_H

#include "bond.h"

enum {
	BOND_SQ_FACTOR = 2,		/* entries of a member's queue for one of the application's */
	BOND_MAX_SGE = 32,
};

void bond_caps(const struct bond_context *bctx, struct ibv_device_attr *attr);
/* Of those, what a CQ is checked against. */
int bond_max_cqe(const struct bond_context *bctx);
/* Mbit/s of a port by its width and speed. */
uint32_t bond_port_mbps(const struct ibv_port_attr *port);

#endif
