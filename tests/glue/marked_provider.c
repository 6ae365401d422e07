/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A provider that leaves marks in the file $GLUE_TEST_RECORD: when it is loaded, and when it claims
 * the kernel device $GLUE_TEST_PRIMARY as bond0, with the driver that the device would have had and
 * all drivers in the order in which they registered. It claims as the bond does, down to refusing a
 * device whose driver it cannot know yet, and opens nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "front.h"
#include "glue.h"

static const struct verbs_device_ops marked_ops;

__attribute__((format(printf, 1, 2)))
static void record(const char *format, ...)
{
	const char *path = getenv("GLUE_TEST_RECORD");
	va_list args;
	int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;

	if (fd < 0)
		return;
	va_start(args, format);
	vdprintf(fd, format, args);
	va_end(args);
	close(fd);
}

static void record_claim(const char *device, const struct verbs_device_ops *real)
{
	const struct verbs_device_ops *drivers[128];
	front_drivers_fn *front_drivers;
	size_t n = 0;

	*(void **)&front_drivers = dlsym(RTLD_DEFAULT, FRONT_DRIVERS_NAME);
	if (front_drivers)
		n = front_drivers(drivers, 128);
	record("claim %s real=%s order=", device, real ? real->name : "unknown");
	for (size_t i = 0; i < n; i++)
		record("%s%s", i ? "," : "", drivers[i]->name);
	record("\n");
}

static bool marked_match_device(struct verbs_sysfs_dev *dev)
{
	const char *primary = getenv("GLUE_TEST_PRIMARY");

	if (!primary || strcmp(dev->ibdev_name, primary) != 0)
		return false;
	return !glue_front_present() || glue_driver_seen(dev, dev->ibdev_name, &marked_ops);
}

static struct verbs_device *marked_alloc_device(struct verbs_sysfs_dev *dev)
{
	record_claim(dev->ibdev_name, glue_driver_seen(dev, dev->ibdev_name, &marked_ops));
	strcpy(dev->ibdev_name, "bond0");
	return calloc(1, sizeof(struct verbs_device));
}

static void marked_uninit_device(struct verbs_device *device)
{
	free(device);
}

static struct verbs_context *marked_alloc_context(struct ibv_device *device, int cmd_fd, void *data)
{
	(void)device;
	(void)data;
	close(cmd_fd);
	errno = EOPNOTSUPP;
	return NULL;
}

/* A kernel that knows the driver asks those first who name its id. */
static const struct verbs_match_ent marked_table[] = {
	VERBS_DRIVER_ID(RDMA_DRIVER_MLX5),
	VERBS_DRIVER_ID(RDMA_DRIVER_RXE),
	{ 0 },
};

static const struct verbs_device_ops marked_ops = {
	.name = "bond",
	.match_min_abi_version = 0,
	.match_max_abi_version = 1000,
	.match_table = marked_table,
	.match_device = marked_match_device,
	.alloc_device = marked_alloc_device,
	.uninit_device = marked_uninit_device,
	.alloc_context = marked_alloc_context,
};

static __attribute__((constructor)) void marked_load(void)
{
	char why[256];

	if (glue_layout_check(why, sizeof(why))) {
		record("refused %s\n", why);
		return;
	}
	record("loaded\n");
	verbs_register_driver(&marked_ops);
}
