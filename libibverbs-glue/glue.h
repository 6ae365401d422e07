/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What libibverbs does not offer a provider and the bond needs: is the layout right, which driver
 * would have got a device, open that device behind the application's back, whose id does a context
 * carry. One .c file each: layout_check.c, driver.c, private_device.c, context.c.
 *
 * Only here and in verbs_private.h does anything depend on the layout of the private ABI.
 */
#ifndef GLUE_H
#define GLUE_H

#include "verbs_private.h"

/*
 * 0 if the libibverbs that this object is bound to has the layout that we were built for, else
 * ENOTSUP and a sentence in why. To be asked before anything is registered.
 */
int glue_layout_check(char *why, size_t why_bytes);

/*
 * The real driver of a kernel device: the ops among those that the front has seen register which
 * libibverbs would have picked for dev, were own not there. ibdev_name is the kernel's name of the
 * device, as in glue_open_private. dev itself is not changed.
 *
 * NULL without the front, or where that driver has not registered yet. The second happens in
 * match_device: libibverbs offers devices to the drivers that a program has linked before it loads
 * the rest, and offers what nobody took again. So with a front, match_device had better refuse a
 * device whose driver is not seen.
 */
const struct verbs_device_ops *glue_driver_seen(const struct verbs_sysfs_dev *dev,
						const char *ibdev_name,
						const struct verbs_device_ops *own);
bool glue_front_present(void);

/*
 * Opens a kernel device through ops without the device list: on a copy of its sysfs entry under
 * ibdev_name (the kernel's name; orig may have been renamed by alloc_device). NULL and errno:
 * ENODEV where ops do not match the device, else what alloc_device or the open left.
 *
 * The context owns its private device and frees it when it is closed.
 */
struct ibv_context *glue_open_private(const struct verbs_device_ops *ops,
				      const struct verbs_sysfs_dev *orig, const char *ibdev_name);

/* 0 or a positive errno. Members opened in the ordinary way close with ibv_close_device. */
int glue_close_private(struct ibv_context *context);

/*
 * The id that libibverbs sends with every ioctl of this context; the kernel refuses another than
 * the device's with EINVAL. Pass the primary's to verbs_alloc_context().
 */
uint32_t glue_context_driver_id(struct ibv_context *context);

/*
 * True if the private part of a context, just made by verbs_alloc_context() with driver_id and
 * given ops by verbs_set_ops(), has both where we expect them.
 */
bool glue_context_check(struct ibv_context *context, const struct verbs_context_ops *ops,
			uint32_t driver_id);

#endif
