/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finding, opening and closing members; what sysfs says of a device. */
#ifndef BOND_MEMBER_H
#define BOND_MEMBER_H

#include "bond.h"

/* What a specification in the configuration may name a device by. */
struct device_names {
	char name[IBV_SYSFS_NAME_MAX];
	char netdev[256];
	char pci[64];
	char guid[32];
};

/* Reads what sysfs knows of the device at @ibdev_path; fields unknown are empty. */
void device_names_read(struct device_names *names, const char *name, const char *ibdev_path);
/* The name of the kernel driver below it, "" where sysfs does not say. */
void device_driver_read(char *driver, size_t size, const char *ibdev_path);
struct config_device_info device_names_info(const struct device_names *names);

/*
 * Opens the primary privately and the others from the device list, in the order of the
 * configuration. A missing one is warned about and left out. errno: ENODEV without a primary.
 */
int members_open(struct bond_context *bctx, struct bond_device *bdev);
void members_close(struct bond_context *bctx);

#endif
