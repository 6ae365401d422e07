/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A program that is not linked to libibverbs but finds it at run time, symbol by symbol and version
 * by version, as NCCL does. Prints which file each symbol comes from and the devices.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

static const struct {
	const char *name;
	const char *version;
} symbols[] = {
	{ "ibv_get_device_list", "IBVERBS_1.1" },  { "ibv_free_device_list", "IBVERBS_1.1" },
	{ "ibv_get_device_name", "IBVERBS_1.1" },  { "ibv_open_device", "IBVERBS_1.1" },
	{ "ibv_close_device", "IBVERBS_1.1" },     { "ibv_get_async_event", "IBVERBS_1.1" },
	{ "ibv_query_port", "IBVERBS_1.1" },       { "ibv_reg_mr_iova2", "IBVERBS_1.8" },
	{ "ibv_reg_dmabuf_mr", "IBVERBS_1.12" },   { "ibv_query_ece", "IBVERBS_1.10" },
	{ "ibv_create_qp", "IBVERBS_1.1" },        { "ibv_create_qp", "IBVERBS_1.0" },
	{ "ibv_event_type_str", "IBVERBS_1.1" },   { "ibv_fork_init", "IBVERBS_1.1" },
	{ "ibv_get_device_list", "IBVERBS_9.99" }, { "ibv_no_such_call", "IBVERBS_1.1" },
};

static void *symbol_print(void *handle, const char *name, const char *version)
{
	void *address = dlvsym(handle, name, version);
	char path[PATH_MAX];
	Dl_info info;

	/* One file may have been found under two names (/lib is a link to /usr/lib). */
	if (!address || !dladdr(address, &info) || !realpath(info.dli_fname, path))
		strcpy(path, "none");
	printf("%s %s: %s\n", name, version, path);
	return address;
}

int main(void)
{
	struct ibv_device **(*get_list)(int *);
	const char *(*get_name)(struct ibv_device *);
	void (*free_list)(struct ibv_device **);
	struct ibv_device **list;
	void *handle = dlopen("libibverbs.so.1", RTLD_NOW);

	if (!handle) {
		printf("%s\n", dlerror());
		return 1;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		symbol_print(handle, symbols[i].name, symbols[i].version);

	*(void **)&get_list = dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.1");
	*(void **)&get_name = dlvsym(handle, "ibv_get_device_name", "IBVERBS_1.1");
	*(void **)&free_list = dlvsym(handle, "ibv_free_device_list", "IBVERBS_1.1");
	list = get_list(NULL);
	if (!list) {
		perror("ibv_get_device_list");
		return 0;
	}
	for (size_t i = 0; list[i]; i++)
		printf("device %s\n", get_name(list[i]));
	free_list(list);
	return 0;
}
