/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A device that no list shows: made the way libibverbs makes one from a driver and a sysfs entry,
 * and opened. Which driver is the caller's question, see driver.c.
 *
 * References: the device starts with one of ours and the open context holds another. Ours goes as
 * soon as the open is over, so an open device lives exactly as long as its context and a failed
 * open leaves nothing. Public code puts a reference by handing a list to ibv_free_device_list().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "glue.h"

static enum ibv_transport_type node_transport(enum ibv_node_type node_type)
{
	switch (node_type) {
	case IBV_NODE_CA:
	case IBV_NODE_SWITCH:
	case IBV_NODE_ROUTER:
		return IBV_TRANSPORT_IB;
	case IBV_NODE_RNIC:
		return IBV_TRANSPORT_IWARP;
	case IBV_NODE_USNIC:
		return IBV_TRANSPORT_USNIC;
	case IBV_NODE_USNIC_UDP:
		return IBV_TRANSPORT_USNIC_UDP;
	case IBV_NODE_UNSPECIFIED:
		return IBV_TRANSPORT_UNSPECIFIED;
	case IBV_NODE_UNKNOWN:
		break;
	}
	return IBV_TRANSPORT_UNKNOWN;
}

/* ibdev_path is <sysfs>/class/infiniband/<name>; the uverbs device stands beside that class. */
static int uverbs_path(char *path, size_t path_bytes, const struct verbs_sysfs_dev *sysfs)
{
	static const char class_dir[] = "/class/infiniband/";
	const char *end = strstr(sysfs->ibdev_path, class_dir);
	int n;

	if (!end)
		return EINVAL;
	n = snprintf(path, path_bytes, "%.*s/class/infiniband_verbs/%s",
		     (int)(end - sysfs->ibdev_path), sysfs->ibdev_path, sysfs->sysfs_name);
	return n < 0 || (size_t)n >= path_bytes ? ENAMETOOLONG : 0;
}

/* On success the device owns sysfs. */
static struct verbs_device *device_make(const struct verbs_device_ops *ops,
					struct verbs_sysfs_dev *sysfs)
{
	struct verbs_device *vdev;
	char dev_path[IBV_SYSFS_PATH_MAX];
	int err;

	err = uverbs_path(dev_path, sizeof(dev_path), sysfs);
	if (err) {
		errno = err;
		return NULL;
	}

	errno = 0;
	vdev = ops->alloc_device(sysfs);
	if (!vdev) {
		errno = errno ? errno : ENOMEM;
		return NULL;
	}

	vdev->ops = ops;
	vdev->sysfs = sysfs;
	atomic_init(&vdev->refcount, 1);
	vdev->device.node_type = sysfs->node_type;
	vdev->device.transport_type = node_transport(sysfs->node_type);
	strcpy(vdev->device.name, sysfs->ibdev_name);
	strcpy(vdev->device.dev_name, sysfs->sysfs_name);
	strcpy(vdev->device.dev_path, dev_path);
	strcpy(vdev->device.ibdev_path, sysfs->ibdev_path);
	return vdev;
}

struct ibv_context *glue_open_private(const struct verbs_device_ops *ops,
				      const struct verbs_sysfs_dev *orig, const char *ibdev_name)
{
	struct ibv_context *context;
	struct ibv_device **put_list;
	struct verbs_sysfs_dev *sysfs;
	struct verbs_device *vdev;
	int err;

	put_list = calloc(2, sizeof(*put_list));
	if (!put_list)
		return NULL;
	sysfs = sysfs_copy(orig, ibdev_name);
	if (!sysfs)
		goto err_free_list;
	if (!driver_match(ops, sysfs)) {
		errno = ENODEV;
		goto err_free_sysfs;
	}
	vdev = device_make(ops, sysfs);
	if (!vdev)
		goto err_free_sysfs;

	errno = 0;
	context = verbs_open_device(&vdev->device, NULL);
	err = context ? 0 : errno ? errno : EIO;

	put_list[0] = &vdev->device;
	ibv_free_device_list(put_list);
	if (err)
		errno = err;
	return context;

err_free_sysfs:
	err = errno;
	free(sysfs);
	errno = err;
err_free_list:
	err = errno;
	free(put_list);
	errno = err;
	return NULL;
}

int glue_close_private(struct ibv_context *context)
{
	return ibv_close_device(context) ? errno : 0;
}
