/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Inside the glue: matching a driver to a device, shared by driver.c and private_device.c. */
#ifndef GLUE_DRIVER_H
#define GLUE_DRIVER_H

#include <stdbool.h>

struct verbs_device_ops;
struct verbs_sysfs_dev;

/* True if ops accept dev; sets dev->match and whatever match_device keeps in dev. */
bool driver_match(const struct verbs_device_ops *ops, struct verbs_sysfs_dev *dev);

/* A copy for free(3) under the kernel's name of the device; NULL and errno. */
struct verbs_sysfs_dev *sysfs_copy(const struct verbs_sysfs_dev *orig, const char *ibdev_name);

#endif
