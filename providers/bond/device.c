/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How bond0 comes to be (design 3): libibverbs offers each kernel device to the registered drivers
 * in turn. This one takes the devices that the configuration names as primaries and gives them the
 * bond's name; everything else is left to whoever comes next. Without a configuration it registers
 * nothing. Opening is context.c's and member.c's business.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "glue.h"
#include "log.h"
#include "member.h"

#ifndef RDMA_DRIVER_COUNT
#define RDMA_DRIVER_COUNT 64	/* enum rdma_driver_id with room for drivers to come */
#endif

enum { WARN_BONDS = 16 };

static struct config config;
/* Every driver id, so that the match by id finds us, and a name that matches where there is none. */
static struct verbs_match_ent match_table[RDMA_DRIVER_COUNT + 2];
static uint16_t member_warned[BOND_MAX_MEMBERS];

bool device_is_bond(const struct ibv_device *dev)
{
	return to_verbs_device((struct ibv_device *)dev)->ops == &bond_device_ops;
}

void device_warn_member(struct bond_device *bdev, unsigned int member, const char *why)
{
	long bond = bdev->cfg - config.bonds;

	if (bond >= WARN_BONDS || member_warned[member] & 1u << bond)
		return;
	member_warned[member] |= 1u << bond;
	bond_warn("%s: member %u (%s) is left out: %s", bdev->cfg->name, member + 1,
		  bdev->cfg->members[member].text, why);
}

/* A device of sysfs. */
struct seen {
	struct config_device_info info;
	const char *path;
};

/* Calls @fn for each RDMA device in sysfs until it says true; false: it never did. */
static bool sysfs_each(bool (*fn)(const struct seen *seen, const void *arg), const void *arg)
{
	const char *sysfs = secure_getenv("SYSFS_PATH");
	char class_dir[PATH_MAX], path[PATH_MAX];
	struct device_names names;
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(class_dir, sizeof(class_dir), "%s/class/infiniband", sysfs ? sysfs : "/sys");
	dir = opendir(class_dir);
	if (!dir)
		return false;
	while (!found && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || strlen(entry->d_name) >= IBV_SYSFS_NAME_MAX ||
		    (size_t)snprintf(path, sizeof(path), "%s/%s", class_dir, entry->d_name) >=
			    sizeof(path))
			continue;
		device_names_read(&names, entry->d_name, path);
		found = fn(&(struct seen){ device_names_info(&names), path }, arg);
	}
	closedir(dir);
	return found;
}

static bool is_first_member(const struct seen *seen, const void *cfg)
{
	return config_member_matches(&((const struct bond_config *)cfg)->members[0], &seen->info);
}

static bool is_bond_named(const struct seen *seen, const void *cfg)
{
	return config_bond_named(cfg, &seen->info);
}

/* Its first member, or where that is not there under its name, who has the bond's. */
static bool is_primary(const struct seen *seen, const struct bond_config *cfg)
{
	return is_first_member(seen, cfg) ||
	       (is_bond_named(seen, cfg) && !sysfs_each(is_first_member, cfg));
}

static const struct bond_config *primary_of(const struct seen *seen)
{
	int i;

	for (i = 0; i < config.num_bonds; i++)
		if (is_primary(seen, &config.bonds[i]))
			return &config.bonds[i];
	return NULL;
}

static const struct bond_config *device_config(const struct verbs_sysfs_dev *dev)
{
	struct device_names names;

	device_names_read(&names, dev->ibdev_name, dev->ibdev_path);
	return primary_of(&(struct seen){ device_names_info(&names), dev->ibdev_path });
}

struct wanted {
	const struct bond_config *cfg;
	char driver[NAME_MAX + 1];	/* of the primary */
};

/* A member that stays in the list, under the driver that the primary has in the kernel, too. */
static bool is_other_member_of(const struct seen *seen, const void *arg)
{
	const struct wanted *wanted = arg;
	char driver[NAME_MAX + 1];
	int i;

	for (i = 1; i < wanted->cfg->num_members; i++)
		if (config_member_matches(&wanted->cfg->members[i], &seen->info))
			break;
	if (i == wanted->cfg->num_members || primary_of(seen))
		return false;
	device_driver_read(driver, sizeof(driver), seen->path);
	return !strcmp(driver, wanted->driver);
}

/* Once per bond and process. */
static void warn_once(const struct bond_config *cfg, const char *why)
{
	static bool warned[WARN_BONDS];
	long bond = cfg - config.bonds;

	if (bond >= WARN_BONDS || warned[bond])
		return;
	warned[bond] = true;
	bond_warn("%s: not made: %s", cfg->name, why);
}

/* What cannot be opened by any driver known here must not take its primary's place. */
static bool bond_match_device(struct verbs_sysfs_dev *dev)
{
	struct wanted wanted = { .cfg = device_config(dev) };

	if (!wanted.cfg)
		return false;
	if (strcmp(dev->ibdev_name, wanted.cfg->name) && sysfs_each(is_bond_named, wanted.cfg)) {
		warn_once(wanted.cfg, "another device has its name");
		return false;
	}
	/* With the front, libibverbs offers it again when its driver has registered too. */
	if (glue_front_present())
		return glue_driver_seen(dev, dev->ibdev_name, &bond_device_ops);
	device_driver_read(wanted.driver, sizeof(wanted.driver), dev->ibdev_path);
	if (sysfs_each(is_other_member_of, &wanted))
		return true;
	warn_once(wanted.cfg, "no other member is there whose driver could open the primary; "
			      "preload the front");
	return false;
}

/* Options that are read and have no effect yet: nobody should rely on them unknowingly. */
static void options_check(void)
{
	int i;

	for (i = 0; i < config.num_bonds; i++) {
		const struct bond_config *cfg = &config.bonds[i];

		if (cfg->ordering == CONFIG_ORDERING_STRICT)
			bond_warn("%s: ordering = strict is not there yet; memory is what you get",
				  cfg->name);
		if (cfg->mode == CONFIG_MODE_BACKUP)
			bond_warn("%s: mode = backup uses the primary alone and fails over to nobody yet",
				  cfg->name);
		if (cfg->split_send == CONFIG_SPLIT_SEND_ALWAYS)
			bond_warn("%s: split_send has no effect yet: no SEND is split", cfg->name);
	}
}

static void primaries_check(void)
{
	int i;

	for (i = 0; i < config.num_bonds; i++)
		if (!sysfs_each(is_first_member, &config.bonds[i]) &&
		    !sysfs_each(is_bond_named, &config.bonds[i]))
			bond_warn("%s: not made: its primary, member 1 (%s), is not there",
				  config.bonds[i].name, config.bonds[i].members[0].text);
}

static struct verbs_device *bond_alloc_device(struct verbs_sysfs_dev *dev)
{
	struct bond_device *bdev = calloc(1, sizeof(*bdev));

	if (!bdev)
		return NULL;
	bdev->cfg = device_config(dev);
	bdev->primary = malloc(sizeof(*bdev->primary));
	if (!bdev->cfg || !bdev->primary) {
		free(bdev->primary);
		free(bdev);
		return NULL;
	}
	*bdev->primary = *dev;
	snprintf(dev->ibdev_name, sizeof(dev->ibdev_name), "%s", bdev->cfg->name);
	return &bdev->vdev;
}

static void bond_uninit_device(struct verbs_device *vdev)
{
	struct bond_device *bdev = bond_container_of(vdev, struct bond_device, vdev);

	free(bdev->primary);
	free(bdev);
}

const struct verbs_device_ops bond_device_ops = {
	.name = "bond",
	.match_min_abi_version = 0,
	.match_max_abi_version = UINT32_MAX,
	.match_table = match_table,
	.match_device = bond_match_device,
	.alloc_device = bond_alloc_device,
	.uninit_device = bond_uninit_device,
	.alloc_context = bond_alloc_context,
};

static void config_report(void *arg, const char *bond, const char *text)
{
	(void)arg;
	(void)bond;
	bond_warn("%s", text);
}

static void match_table_fill(void)
{
	unsigned int i;

	for (i = 0; i < RDMA_DRIVER_COUNT; i++)
		match_table[i] = (struct verbs_match_ent)VERBS_DRIVER_ID(i + 1);
	match_table[i].kind = VERBS_MATCH_MODALIAS;
	match_table[i].u.modalias = "rdma_device:N*";
}

__attribute__((constructor)) static void bond_register(void)
{
	char why[160];
	const char *off = secure_getenv("RDMA_BOND");

	if (off && !strcmp(off, "off"))
		return;
	config_load(&config, config_report, NULL);
	if (!config.num_bonds)
		return;
	if (glue_layout_check(why, sizeof(why))) {
		bond_warn("not used: %s", why);
		return;
	}
	primaries_check();
	options_check();
	match_table_fill();
	verbs_register_driver(&bond_device_ops);
}
