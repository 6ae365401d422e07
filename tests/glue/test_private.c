/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Private devices: how one is filled, opened and freed, and which driver a device belongs to. The
 * program plays the front (it answers which drivers registered) and the kernel (interpose.c). The
 * driver is a toy; whether real ones accept all this is for tests on real devices.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "front.h"
#include "glue.h"
#include "interpose.h"

/*
 * A driver that counts
 */

static struct {
	unsigned int alloc_device, uninit_device, alloc_context, free_context;
	const struct verbs_match_ent *match; /* what alloc_device found in its entry */
	char ibdev_name[IBV_SYSFS_NAME_MAX];
	int alloc_device_errno, alloc_context_errno;
	bool own_async_fd;
} toy;

static void toy_free_context(struct ibv_context *context)
{
	struct verbs_context *vctx = to_verbs_context(context);

	toy.free_context++;
	verbs_uninit_context(vctx);
	free(vctx);
}

struct toy_context {
	struct verbs_context vctx;
};

static struct verbs_context *toy_alloc_context(struct ibv_device *device, int cmd_fd, void *data)
{
	static const struct verbs_context_ops ops = { .free_context = toy_free_context };
	struct toy_context *context;

	(void)data;
	toy.alloc_context++;
	context = verbs_alloc_context(device, cmd_fd, struct toy_context, vctx, RDMA_DRIVER_SIW);
	if (!context)
		return NULL;
	verbs_set_ops(&context->vctx, &ops);
	if (toy.own_async_fd)
		context->vctx.context.async_fd = dup(cmd_fd);
	if (toy.alloc_context_errno) {
		verbs_uninit_context(&context->vctx);
		free(context);
		errno = toy.alloc_context_errno;
		return NULL;
	}
	return &context->vctx;
}

static struct verbs_device *toy_alloc_device(struct verbs_sysfs_dev *sysfs)
{
	toy.alloc_device++;
	toy.match = sysfs->match;
	strcpy(toy.ibdev_name, sysfs->ibdev_name);
	if (toy.alloc_device_errno) {
		errno = toy.alloc_device_errno;
		return NULL;
	}
	return calloc(1, sizeof(struct verbs_device));
}

static void toy_uninit_device(struct verbs_device *device)
{
	toy.uninit_device++;
	free(device);
}

static const struct verbs_match_ent siw_table[] = {
	VERBS_DRIVER_ID(RDMA_DRIVER_RXE),
	VERBS_DRIVER_ID(RDMA_DRIVER_SIW),
	{ 0 },
};

#define TOY(driver_name, table, function) \
	{ \
		.name = (driver_name), .match_min_abi_version = 1, .match_max_abi_version = 4, \
		.match_table = (table), .match_device = (function), \
		.alloc_context = toy_alloc_context, .alloc_device = toy_alloc_device, \
		.uninit_device = toy_uninit_device, \
	}

static const struct verbs_device_ops siw_ops = TOY("siw", siw_table, NULL);

static struct verbs_sysfs_dev siw_entry(void)
{
	struct verbs_sysfs_dev dev = {
		.sysfs_name = "uverbs7",
		.sysfs_cdev = interposed_cdev(),
		.ibdev_name = "bond0", /* as our alloc_device left it */
		.ibdev_path = "/sys/class/infiniband/siw0",
		.driver_id = RDMA_DRIVER_SIW,
		.node_type = IBV_NODE_RNIC,
		.ibdev_idx = 5,
		.abi_ver = 1,
	};

	return dev;
}

static int toy_reset(void **state)
{
	(void)state;
	memset(&toy, 0, sizeof(toy));
	toy.own_async_fd = true;
	ioctl_answer_errno = 0;
	return 0;
}

/*
 * Opening and closing
 */

static void private_device_is_filled_like_a_listed_one(void **state)
{
	const struct verbs_sysfs_dev orig = siw_entry();
	struct ibv_context *context = glue_open_private(&siw_ops, &orig, "siw0");
	struct ibv_device *device;

	(void)state;
	assert_non_null(context);
	device = context->device;
	assert_string_equal(device->name, "siw0");
	assert_string_equal(device->dev_name, "uverbs7");
	assert_string_equal(device->dev_path, "/sys/class/infiniband_verbs/uverbs7");
	assert_string_equal(device->ibdev_path, "/sys/class/infiniband/siw0");
	assert_int_equal(device->node_type, IBV_NODE_RNIC);
	assert_int_equal(device->transport_type, IBV_TRANSPORT_IWARP);
	assert_int_equal(ibv_get_device_index(device), 5);
	assert_ptr_equal(to_verbs_device(device)->ops, &siw_ops);
	assert_ptr_equal(toy.match, &siw_table[1]);
	assert_string_equal(toy.ibdev_name, "siw0");
	assert_int_equal(glue_context_driver_id(context), RDMA_DRIVER_SIW);

	assert_string_equal(orig.ibdev_name, "bond0");
	assert_null(orig.match);
	assert_int_equal(glue_close_private(context), 0);
}

static void private_device_lives_as_long_as_its_context(void **state)
{
	const struct verbs_sysfs_dev orig = siw_entry();
	struct ibv_context *context = glue_open_private(&siw_ops, &orig, "siw0");

	(void)state;
	assert_non_null(context);
	assert_int_equal(atomic_load(&to_verbs_device(context->device)->refcount), 1);
	assert_int_equal(toy.uninit_device, 0);

	assert_int_equal(glue_close_private(context), 0);
	assert_int_equal(toy.free_context, 1);
	assert_int_equal(toy.alloc_device, 1);
	assert_int_equal(toy.uninit_device, 1);
}

static void expect_no_device(const struct verbs_sysfs_dev *orig, int expected_errno)
{
	errno = 0;
	assert_null(glue_open_private(&siw_ops, orig, "siw0"));
	assert_int_equal(errno, expected_errno);
	assert_int_equal(toy.uninit_device, toy.alloc_device - !!toy.alloc_device_errno);
}

static void failures_leave_nothing_and_say_why(void **state)
{
	struct verbs_sysfs_dev orig = siw_entry();

	toy.alloc_device_errno = EBUSY;
	expect_no_device(&orig, EBUSY);

	toy_reset(state);
	toy.alloc_context_errno = EPROTO;
	expect_no_device(&orig, EPROTO);
	assert_int_equal(toy.alloc_context, 1);

	/* No descriptor for asynchronous events: the context was there already and is freed. */
	toy_reset(state);
	toy.own_async_fd = false;
	ioctl_answer_errno = ENODEV;
	expect_no_device(&orig, ENODEV);
	assert_int_equal(toy.free_context, 1);

	toy_reset(state);
	orig.driver_id = RDMA_DRIVER_MLX5;
	expect_no_device(&orig, ENODEV);
	assert_int_equal(toy.alloc_device, 0);

	strcpy(orig.ibdev_path, "/somewhere/else");
	orig.driver_id = RDMA_DRIVER_SIW;
	expect_no_device(&orig, EINVAL);

	assert_null(glue_open_private(&siw_ops, &orig,
				      "a-name-longer-than-the-sixty-three-bytes-"
				      "that-there-are-for-it-in-the-entry"));
	assert_int_equal(errno, ENAMETOOLONG);
}

/*
 * Which driver: the drivers that "registered" are what the program says
 */

static const struct verbs_device_ops *registered[8];
static size_t registered_count;

front_drivers_fn FRONT_DRIVERS_SYMBOL;
__attribute__((visibility("default")))
size_t FRONT_DRIVERS_SYMBOL(const struct verbs_device_ops **drivers, size_t max)
{
	for (size_t i = 0; i < registered_count && i < max; i++)
		drivers[i] = registered[i];
	return registered_count;
}

static bool accept_all(struct verbs_sysfs_dev *dev)
{
	dev->provider_data = dev;
	return true;
}

static bool accept_none(struct verbs_sysfs_dev *dev)
{
	(void)dev;
	return false;
}

static bool accept_table(struct verbs_sysfs_dev *dev)
{
	return dev->match != NULL;
}

static const struct verbs_match_ent name_table[] = {
	{ .kind = VERBS_MATCH_MODALIAS, .u = { .modalias = "rdma_device:*Nsiw*" } },
	{ 0 },
};
static const struct verbs_match_ent pci_table[] = {
	{ .kind = VERBS_MATCH_PCI, .vendor = 0x15b3, .device = 0x1017 },
	{ 0 },
};
static const struct verbs_match_ent alias_table[] = {
	{ .kind = VERBS_MATCH_MODALIAS, .u = { .modalias = "pci:v000015B3d*bc02sc00i00" } },
	{ 0 },
};

static const struct verbs_device_ops own_ops = TOY("bond", siw_table, accept_all);
static const struct verbs_device_ops all_ops = TOY("all", NULL, accept_all);
static const struct verbs_device_ops none_ops = TOY("none", siw_table, accept_none);
static const struct verbs_device_ops name_ops = TOY("name", name_table, NULL);
static const struct verbs_device_ops pci_ops = TOY("pci", pci_table, accept_table);
static const struct verbs_device_ops alias_ops = TOY("alias", alias_table, NULL);

#define SEEN(dev, ...) \
	seen((dev), (const struct verbs_device_ops *[]){ __VA_ARGS__, NULL })

static const char *seen(const struct verbs_sysfs_dev *dev, const struct verbs_device_ops **list)
{
	const struct verbs_device_ops *found;

	for (registered_count = 0; list[registered_count]; registered_count++)
		registered[registered_count] = list[registered_count];
	found = glue_driver_seen(dev, "siw0", &own_ops);
	return found ? found->name : "nobody";
}

static void driver_id_comes_first(void **state)
{
	struct verbs_sysfs_dev dev = siw_entry();

	(void)state;
	assert_true(glue_front_present());
	assert_string_equal(SEEN(&dev, &own_ops, &siw_ops), "siw");
	assert_string_equal(SEEN(&dev, &own_ops, &all_ops, &name_ops, &siw_ops), "siw");
	assert_string_equal(SEEN(&dev, &own_ops, &none_ops, &siw_ops), "siw");
	assert_string_equal(SEEN(&dev, &own_ops, &name_ops, &all_ops), "name");
	assert_string_equal(SEEN(&dev, &own_ops, &none_ops), "nobody");
	assert_string_equal(SEEN(&dev, &own_ops), "nobody");
	assert_null(dev.match);
	assert_null(dev.provider_data);
}

static void name_counts_where_the_kernel_gave_no_id(void **state)
{
	struct verbs_sysfs_dev dev = siw_entry();

	(void)state;
	dev.driver_id = RDMA_DRIVER_UNKNOWN;
	assert_string_equal(SEEN(&dev, &own_ops, &siw_ops), "nobody");
	assert_string_equal(SEEN(&dev, &own_ops, &siw_ops, &name_ops, &all_ops), "name");
}

static void kernel_abi_out_of_range_is_nobodys(void **state)
{
	struct verbs_sysfs_dev dev = siw_entry();

	(void)state;
	dev.abi_ver = 4;
	assert_string_equal(SEEN(&dev, &siw_ops), "siw");
	dev.abi_ver = 5;
	assert_string_equal(SEEN(&dev, &siw_ops), "nobody");
	dev.abi_ver = 0;
	assert_string_equal(SEEN(&dev, &siw_ops), "nobody");
}

static void modalias_is_read_and_matched(void **state)
{
	static const char alias[] = "pci:v000015B3d00001017sv000015B3sd00000020bc02sc00i00\n";
	char folder[] = "/tmp/glue-modalias-XXXXXX", file[80];
	struct verbs_sysfs_dev dev = siw_entry();
	FILE *stream;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(dev.ibdev_path, sizeof(dev.ibdev_path), "%s", folder);
	dev.driver_id = RDMA_DRIVER_UNKNOWN;
	assert_string_equal(SEEN(&dev, &own_ops, &pci_ops), "nobody");

	snprintf(file, sizeof(file), "%s/device", folder);
	assert_int_equal(mkdir(file, 0700), 0);
	snprintf(file, sizeof(file), "%s/device/modalias", folder);
	stream = fopen(file, "w");
	assert_non_null(stream);
	fputs(alias, stream);
	fclose(stream);
	assert_string_equal(SEEN(&dev, &own_ops, &pci_ops), "pci");
	assert_string_equal(SEEN(&dev, &own_ops, &alias_ops), "alias");

	/* What libibverbs has read itself is believed, also that there is none. */
	dev.flags = VSYSFS_READ_MODALIAS;
	assert_string_equal(SEEN(&dev, &own_ops, &pci_ops), "nobody");

	unlink(file);
	snprintf(file, sizeof(file), "%s/device", folder);
	rmdir(file);
	rmdir(folder);
}

int main(void)
{
#define WITH_TOY(test) cmocka_unit_test_setup(test, toy_reset)
	const struct CMUnitTest tests[] = {
		WITH_TOY(private_device_is_filled_like_a_listed_one),
		WITH_TOY(private_device_lives_as_long_as_its_context),
		WITH_TOY(failures_leave_nothing_and_say_why),
		WITH_TOY(driver_id_comes_first),
		WITH_TOY(name_counts_where_the_kernel_gave_no_id),
		WITH_TOY(kernel_abi_out_of_range_is_nobodys),
		WITH_TOY(modalias_is_read_and_matched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
