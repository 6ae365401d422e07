/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* bond0 as a device of libibverbs' list. */
#ifndef BOND_DEVICE_H
#define BOND_DEVICE_H

#include "bond.h"

extern const struct verbs_device_ops bond_device_ops;

bool device_is_bond(const struct ibv_device *dev);
/* Once per member and process. */
void device_warn_member(struct bond_device *bdev, unsigned int member, const char *why);

/* context.c */
struct verbs_context *bond_alloc_context(struct ibv_device *dev, int cmd_fd, void *private_data);

#endif
