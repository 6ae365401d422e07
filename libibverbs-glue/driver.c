/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which driver a kernel device belongs to: libibverbs' own rules, over the drivers that the front
 * saw. Whoever claims a device (the provider's match_device) is not here; opening it is
 * private_device.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "front.h"
#include "glue.h"

static bool ent_matches_alias(const struct verbs_match_ent *ent, const char *alias)
{
	char pci_glob[64];

	switch ((enum verbs_match_kind)ent->kind) {
	case VERBS_MATCH_MODALIAS:
		return fnmatch(ent->u.modalias, alias, 0) == 0;
	case VERBS_MATCH_PCI:
		snprintf(pci_glob, sizeof(pci_glob), "pci:v%08Xd%08Xsv*", (unsigned int)ent->vendor,
			 (unsigned int)ent->device);
		return fnmatch(pci_glob, alias, 0) == 0;
	case VERBS_MATCH_DRIVER_ID:
	case VERBS_MATCH_SENTINEL:
		break;
	}
	return false;
}

static const struct verbs_match_ent *table_find_alias(const struct verbs_match_ent *table,
						      const char *alias)
{
	for (; table->kind != VERBS_MATCH_SENTINEL; table++)
		if (ent_matches_alias(table, alias))
			return table;
	return NULL;
}

static const struct verbs_match_ent *table_find_id(const struct verbs_match_ent *table,
						   uint32_t driver_id)
{
	if (driver_id == RDMA_DRIVER_UNKNOWN)
		return NULL;
	for (; table->kind != VERBS_MATCH_SENTINEL; table++)
		if (table->kind == VERBS_MATCH_DRIVER_ID && table->u.driver_id == driver_id)
			return table;
	return NULL;
}

/* Read once per device, and also the answer "has none" is kept. */
static const char *sysfs_modalias(struct verbs_sysfs_dev *dev)
{
	char path[IBV_SYSFS_PATH_MAX + sizeof("/device/modalias")];
	FILE *file;

	if (dev->flags & VSYSFS_READ_MODALIAS)
		return dev->modalias;

	dev->flags |= VSYSFS_READ_MODALIAS;
	dev->modalias[0] = '\0';
	snprintf(path, sizeof(path), "%s/device/modalias", dev->ibdev_path);
	file = fopen(path, "re");
	if (!file)
		return dev->modalias;
	if (!fgets(dev->modalias, sizeof(dev->modalias), file))
		dev->modalias[0] = '\0';
	dev->modalias[strcspn(dev->modalias, "\n")] = '\0';
	fclose(file);
	return dev->modalias;
}

static const struct verbs_match_ent *table_find(const struct verbs_match_ent *table,
						struct verbs_sysfs_dev *dev)
{
	const struct verbs_match_ent *ent;
	char name_alias[IBV_SYSFS_NAME_MAX + sizeof("rdma_device:N")];

	ent = table_find_id(table, dev->driver_id);
	if (ent)
		return ent;

	snprintf(name_alias, sizeof(name_alias), "rdma_device:N%s", dev->ibdev_name);
	ent = table_find_alias(table, name_alias);
	if (ent)
		return ent;

	return sysfs_modalias(dev)[0] ? table_find_alias(table, dev->modalias) : NULL;
}

bool driver_match(const struct verbs_device_ops *ops, struct verbs_sysfs_dev *dev)
{
	dev->match = ops->match_table ? table_find(ops->match_table, dev) : NULL;

	/* The driver's own function has the last word, whatever the table said. */
	if (ops->match_device ? !ops->match_device(dev) : !dev->match)
		return false;

	return dev->abi_ver >= ops->match_min_abi_version &&
	       dev->abi_ver <= ops->match_max_abi_version;
}

struct verbs_sysfs_dev *sysfs_copy(const struct verbs_sysfs_dev *orig, const char *ibdev_name)
{
	struct verbs_sysfs_dev *dev;

	if (strlen(ibdev_name) >= sizeof(dev->ibdev_name)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	dev = malloc(sizeof(*dev));
	if (!dev)
		return NULL;

	*dev = *orig;
	/* The list that the original is on and what its driver put there stay its own. */
	dev->entry = (struct list_node){ 0 };
	dev->provider_data = NULL;
	dev->match = NULL;
	strcpy(dev->ibdev_name, ibdev_name);
	return dev;
}

/* The default scope of this object: the front is in it, globally or as what we link to. */
static front_drivers_fn *front_find(void)
{
	front_drivers_fn *front_drivers;

	*(void **)&front_drivers = dlsym(RTLD_DEFAULT, FRONT_DRIVERS_NAME);
	return front_drivers;
}

bool glue_front_present(void)
{
	return front_find() != NULL;
}

static size_t drivers_seen(const struct verbs_device_ops **drivers)
{
	front_drivers_fn *front_drivers = front_find();
	size_t n = front_drivers ? front_drivers(drivers, FRONT_DRIVERS_MAX) : 0;

	return n < FRONT_DRIVERS_MAX ? n : FRONT_DRIVERS_MAX;
}

const struct verbs_device_ops *glue_driver_seen(const struct verbs_sysfs_dev *dev,
						const char *ibdev_name,
						const struct verbs_device_ops *own)
{
	const struct verbs_device_ops *drivers[FRONT_DRIVERS_MAX];
	const struct verbs_device_ops *found = NULL;
	struct verbs_sysfs_dev *copy;
	size_t n = drivers_seen(drivers);

	copy = n ? sysfs_copy(dev, ibdev_name) : NULL;
	if (!copy)
		return NULL;

	/* Two rounds: whoever names the driver id comes before whoever registered first. */
	for (size_t i = 0; i < n && !found; i++)
		if (drivers[i] != own && drivers[i]->match_table &&
		    table_find_id(drivers[i]->match_table, copy->driver_id) &&
		    driver_match(drivers[i], copy))
			found = drivers[i];
	for (size_t i = 0; i < n && !found; i++)
		if (drivers[i] != own && driver_match(drivers[i], copy))
			found = drivers[i];

	free(copy);
	return found;
}
