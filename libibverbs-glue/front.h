/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The one question that the provider asks the front, found at run time by name: the provider is
 * loaded without a front just as well.
 */
#ifndef GLUE_FRONT_H
#define GLUE_FRONT_H

#include <stddef.h>

struct verbs_device_ops;

#define FRONT_DRIVERS_SYMBOL rdma_bond_front_drivers
#define FRONT_DRIVERS_NAME "rdma_bond_front_drivers"

enum { FRONT_DRIVERS_MAX = 128 };	/* of about 20; what is beyond is not remembered */

/* Fills drivers[] with the first max that registered, in order; returns how many there are. */
typedef size_t front_drivers_fn(const struct verbs_device_ops **drivers, size_t max);

#endif
