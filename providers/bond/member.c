/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Members: ordinary contexts of ordinary devices, this bond context's own. The primary's device is
 * not in the list (bond0 stands in its place) and is opened through its real driver's ops, which
 * the front has seen, or another member of the same driver has (design 3).
 */
#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "glue.h"
#include "log.h"
#include "member.h"
#include "objects.h"

static void sysfs_read(char *to, size_t size, const char *dir, const char *file)
{
	char path[PATH_MAX];
	FILE *f;

	*to = '\0';
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "re");
	if (!f)
		return;
	if (!fgets(to, size, f))
		*to = '\0';
	fclose(f);
	to[strcspn(to, "\n")] = '\0';
}

static void sysfs_netdev(char *to, size_t size, const char *ibdev_path)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	sysfs_read(to, size, ibdev_path, "ports/1/gid_attrs/ndevs/0");
	if (*to)
		return;
	snprintf(path, sizeof(path), "%s/device/net", ibdev_path);
	dir = opendir(path);
	if (!dir)
		return;
	while ((entry = readdir(dir)) && entry->d_name[0] == '.')
		;
	if (entry)
		snprintf(to, size, "%s", entry->d_name);
	closedir(dir);
}

void device_names_read(struct device_names *names, const char *name, const char *ibdev_path)
{
	char path[PATH_MAX], real[PATH_MAX], guid[64];
	size_t i, n = 0;

	memset(names, 0, sizeof(*names));
	snprintf(names->name, sizeof(names->name), "%s", name);
	sysfs_netdev(names->netdev, sizeof(names->netdev), ibdev_path);
	snprintf(path, sizeof(path), "%s/device", ibdev_path);
	if (realpath(path, real))
		snprintf(names->pci, sizeof(names->pci), "%s", basename(real));
	sysfs_read(guid, sizeof(guid), ibdev_path, "node_guid");
	for (i = 0; guid[i] && n + 1 < sizeof(names->guid); i++)
		if (guid[i] != ':')
			names->guid[n++] = guid[i];
}

void device_driver_read(char *driver, size_t size, const char *ibdev_path)
{
	char path[PATH_MAX], real[PATH_MAX];

	snprintf(path, sizeof(path), "%s/device/driver", ibdev_path);
	snprintf(driver, size, "%s", realpath(path, real) ? basename(real) : "");
}

struct config_device_info device_names_info(const struct device_names *names)
{
	return (struct config_device_info){ .name = names->name, .netdev = names->netdev,
					    .pci = names->pci, .guid = names->guid };
}

/* ---- QPN to path ---- */

struct path *bond_member_path(struct bond_member *member, uint32_t qpn)
{
	_Atomic(struct path *) *leaf;

	leaf = atomic_load_explicit(&member->qpn_leaf[qpn >> BOND_QPN_LEAF_BITS &
						      ((1 << (BOND_QPN_BITS - BOND_QPN_LEAF_BITS)) - 1)],
				    memory_order_acquire);
	if (!leaf)
		return NULL;
	return atomic_load_explicit(&leaf[qpn & ((1 << BOND_QPN_LEAF_BITS) - 1)],
				    memory_order_acquire);
}

int bond_member_set_path(struct bond_context *bctx, unsigned int i, uint32_t qpn,
			 struct path *path)
{
	struct bond_member *member = &bctx->member[i];
	unsigned int top = qpn >> BOND_QPN_LEAF_BITS & ((1 << (BOND_QPN_BITS - BOND_QPN_LEAF_BITS)) - 1);
	_Atomic(struct path *) *leaf;
	int err = 0;

	pthread_mutex_lock(&bctx->lock);
	leaf = atomic_load_explicit(&member->qpn_leaf[top], memory_order_relaxed);
	if (!leaf && path) {
		leaf = calloc(1 << BOND_QPN_LEAF_BITS, sizeof(*leaf));
		if (!leaf)
			err = ENOMEM;
		else
			atomic_store_explicit(&member->qpn_leaf[top], leaf, memory_order_release);
	}
	if (leaf)
		atomic_store_explicit(&leaf[qpn & ((1 << BOND_QPN_LEAF_BITS) - 1)], path,
				      memory_order_release);
	pthread_mutex_unlock(&bctx->lock);
	return err;
}

/* ---- opening ---- */

static struct ibv_device *list_find(struct ibv_device **list, const struct member_spec *spec,
				    struct device_names *names)
{
	for (; *list; list++) {
		struct config_device_info info;

		/* Another bond is no member. */
		if (device_is_bond(*list))
			continue;
		device_names_read(names, (*list)->name, (*list)->ibdev_path);
		info = device_names_info(names);
		if (config_member_matches(spec, &info))
			return *list;
	}
	return NULL;
}

/* @err: why another member's driver, if one was tried, did not open it. */
static const struct verbs_device_ops *primary_ops(struct bond_device *bdev,
						  struct ibv_device **list, int *err)
{
	const struct verbs_device_ops *ops;
	struct ibv_context *probe;
	unsigned int i;

	ops = glue_driver_seen(bdev->primary, bdev->primary->ibdev_name, &bond_device_ops);
	if (ops)
		return ops;
	for (i = 1; i < (unsigned int)bdev->cfg->num_members; i++) {
		struct device_names names;
		struct ibv_device *dev = list_find(list, &bdev->cfg->members[i], &names);

		if (!dev)
			continue;
		/* The same driver is the one that can open the primary. */
		ops = to_verbs_device(dev)->ops;
		probe = glue_open_private(ops, bdev->primary, bdev->primary->ibdev_name);
		if (!probe) {
			*err = errno;
			continue;
		}
		glue_close_private(probe);
		return ops;
	}
	return NULL;
}

static int member_init(struct bond_member *member)
{
	int ret;

	ret = ibv_query_device_ex(member->ctx, NULL, &member->attr);
	if (ret) {
		memset(&member->attr, 0, sizeof(member->attr));
		ret = ibv_query_device(member->ctx, &member->attr.orig_attr);
	}
	if (ret)
		return ret;
	errno = 0;
	member->channel = ibv_create_comp_channel(member->ctx);
	if (!member->channel)
		return errno ? errno : EIO;
	return 0;
}

static int member_open_primary(struct bond_context *bctx, struct bond_device *bdev,
			       struct ibv_device **list)
{
	struct bond_member *member = &bctx->member[0];
	const char *name = bdev->primary->ibdev_name;
	int err = 0;
	const struct verbs_device_ops *ops = primary_ops(bdev, list, &err);

	if (!ops && !err) {
		bond_warn("%s: cannot open its primary %s: no driver for it is known here; "
			  "preload the front or add a second member of the same driver",
			  bdev->cfg->name, name);
		return ENODEV;
	}
	if (ops) {
		member->ctx = glue_open_private(ops, bdev->primary, name);
		err = errno ? errno : ENODEV;
	}
	if (!member->ctx) {
		bond_warn("%s: cannot open its primary %s: %s%s", bdev->cfg->name, name, strerror(err),
			  ops ? "" : ", says another member's driver; if the primary's is not the same, "
				     "preload the front");
		return err;
	}
	member->is_private = true;
	snprintf(member->name, sizeof(member->name), "%s", bdev->primary->ibdev_name);
	bctx->nmembers = 1;
	return member_init(member);
}

/* What a member lacks for being one; NULL: nothing. */
static const char *member_unfit(struct bond_context *bctx, struct bond_member *member)
{
	unsigned int i;

	if (member->ctx->device->transport_type != bctx->member[0].ctx->device->transport_type)
		return "it is of another transport than the primary";
	for (i = 0; i < bctx->nmembers; i++)
		if (!strcmp(bctx->member[i].ctx->device->dev_name, member->ctx->device->dev_name))
			return "it is the same device as another member";
	return NULL;
}

static void member_close(struct bond_member *member)
{
	unsigned int i;

	if (member->channel)
		ibv_destroy_comp_channel(member->channel);
	if (member->ctx) {
		if (member->is_private)
			glue_close_private(member->ctx);
		else
			ibv_close_device(member->ctx);
	}
	for (i = 0; i < 1 << (BOND_QPN_BITS - BOND_QPN_LEAF_BITS); i++)
		free(atomic_load(&member->qpn_leaf[i]));
	memset(member, 0, sizeof(*member));
}

/* Why no device of the list is this member. */
static const char *member_absent(struct ibv_device **list, const struct member_spec *spec)
{
	struct config_device_info info;
	struct device_names names;

	for (; *list; list++) {
		const struct verbs_sysfs_dev *primary;

		if (!device_is_bond(*list))
			continue;
		primary = to_bond_device(*list)->primary;
		device_names_read(&names, primary->ibdev_name, primary->ibdev_path);
		info = device_names_info(&names);
		if (config_member_matches(spec, &info))
			return "it is the first member of a bond, which stands in its place";
	}
	return "no such device";
}

/* Missing or unfit: the bond comes up with the rest and says so. */
static void member_open_other(struct bond_context *bctx, struct bond_device *bdev, unsigned int at,
			      struct ibv_device **list)
{
	const struct member_spec *spec = &bdev->cfg->members[at];
	struct bond_member *member = &bctx->member[bctx->nmembers];
	struct device_names names;
	struct ibv_device *dev = list_find(list, spec, &names);
	char cannot[128];
	const char *why;
	int err = 0;

	if (!dev) {
		why = member_absent(list, spec);
	} else {
		member->ctx = ibv_open_device(dev);
		if (!member->ctx)
			err = errno ? errno : ENODEV;
		else
			err = member_init(member);
		snprintf(cannot, sizeof(cannot), "it cannot be opened: %s", strerror(err));
		why = err ? cannot : member_unfit(bctx, member);
	}
	if (why) {
		member_close(member);
		device_warn_member(bdev, at, why);
		return;
	}
	snprintf(member->name, sizeof(member->name), "%s", names.name);
	member->spec = at;
	bctx->nmembers++;
}

int members_open(struct bond_context *bctx, struct bond_device *bdev)
{
	struct ibv_device **list;
	unsigned int i;
	int err;

	bctx->member = calloc(bdev->cfg->num_members, sizeof(*bctx->member));
	if (!bctx->member)
		return ENOMEM;
	list = ibv_get_device_list(NULL);
	if (!list) {
		err = errno;
		goto err_free;
	}
	err = member_open_primary(bctx, bdev, list);
	if (err)
		goto err_close;
	for (i = 1; i < (unsigned int)bdev->cfg->num_members; i++)
		member_open_other(bctx, bdev, i, list);
	ibv_free_device_list(list);
	return 0;

err_close:
	ibv_free_device_list(list);
	members_close(bctx);
	return err;
err_free:
	free(bctx->member);
	bctx->member = NULL;
	return err;
}

void members_close(struct bond_context *bctx)
{
	while (bctx->nmembers)
		member_close(&bctx->member[--bctx->nmembers]);
	free(bctx->member);
	bctx->member = NULL;
}
