/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The front: a library that programs load as libibverbs.so.1, before the real one, which it depends
 * on by absolute path. Of libibverbs' functions it has one, the registration of drivers: there it
 * brings our provider in ahead of the first driver, and remembers every driver for the provider.
 * Everything else is found where it always was, in the real library behind.
 *
 * It is loaded into every RDMA program of the host, so: no constructor, no link to the private ABI
 * (a real library of another PABI must still load), nothing done without a configuration file, and
 * what fails leaves the program as it was. What the provider asks is in front.h and driver.c; the
 * version nodes come from front.cmake.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "front.h"
#include "layout.h"

/* The ops are passed on, not read; the name comes first in every layout. */
struct verbs_device_ops {
	const char *name;
};

typedef void register_fn(const struct verbs_device_ops *ops);
register_fn GLUE_REGISTER_SYMBOL;
front_drivers_fn FRONT_DRIVERS_SYMBOL;

/*
 * Written by constructors only, which the loader runs one at a time; read by the provider in any
 * thread. The release store of the count pairs with the acquire load in rdma_bond_front_drivers().
 */
static const struct verbs_device_ops *drivers[FRONT_DRIVERS_MAX];
static atomic_size_t drivers_count;

static void driver_remember(const struct verbs_device_ops *ops)
{
	size_t n = atomic_load_explicit(&drivers_count, memory_order_relaxed);

	if (n == FRONT_DRIVERS_MAX)
		return;
	drivers[n] = ops;
	atomic_store_explicit(&drivers_count, n + 1, memory_order_release);
}

__attribute__((visibility("default")))
size_t FRONT_DRIVERS_SYMBOL(const struct verbs_device_ops **out, size_t max)
{
	size_t n = atomic_load_explicit(&drivers_count, memory_order_acquire);

	memcpy(out, drivers, (n < max ? n : max) * sizeof(*out));
	return n;
}

/* Only for a user who is who he seems: secure_getenv() answers NULL to set-uid programs. */
static const char *setting(const char *variable, const char *otherwise)
{
	const char *value = secure_getenv(variable);

	return value && *value ? value : otherwise;
}

static bool bond_wanted(void)
{
	return strcmp(setting("RDMA_BOND", ""), "off") != 0 &&
	       access(setting("RDMA_BOND_CONF", BOND_CONF_FILE), F_OK) == 0;
}

/* Past stderr: its first use gives a stream its orientation, which is the program's to choose. */
#define complain(format, ...) dprintf(STDERR_FILENO, "rdma-bond: " format "\n", __VA_ARGS__)

/*
 * A second copy of the provider, as that of a build folder beside the installed one: each would take the
 * other for the real driver of the primary. The first one stays.
 */
static bool provider_again(const struct verbs_device_ops *ops)
{
	size_t n = atomic_load_explicit(&drivers_count, memory_order_relaxed);

	if (strcmp(ops->name, "bond") != 0)
		return false;
	while (n--)
		if (strcmp(drivers[n]->name, "bond") == 0)
			return true;
	return false;
}

/* Before the first driver, once. Our own registration comes through here, too, from inside. */
static void provider_bring_in(const struct verbs_device_ops *first)
{
	static bool done;

	if (done)
		return;
	done = true;
	if (strcmp(first->name, "bond") == 0 || !bond_wanted())
		return;
	if (!dlopen(setting("RDMA_BOND_PROVIDER", BOND_PROVIDER_FILE), RTLD_NOW | RTLD_LOCAL))
		complain("%s", dlerror());
}

/*
 * By handle, not by link: a reference to a private version of libibverbs would stop every program
 * from starting when the real library goes to another.
 */
static register_fn *real_register(void)
{
	static register_fn *real;
	void *handle;

	if (real)
		return real;
	handle = dlopen(FRONT_REAL_FILE, RTLD_LAZY | RTLD_NOLOAD);
	if (handle)
		*(void **)&real = dlvsym(handle, GLUE_REGISTER_NAME, GLUE_PRIVATE_NODE);
	return real;
}

__attribute__((visibility("default")))
void GLUE_REGISTER_SYMBOL(const struct verbs_device_ops *ops)
{
	int saved_errno = errno; /* programs report it long after we have been here */
	register_fn *real = real_register();

	if (real) {
		provider_bring_in(ops);
		if (provider_again(ops))
			real = NULL;
		else
			driver_remember(ops);
		errno = saved_errno;
		if (real)
			real(ops);
		return;
	}
	complain("%s has no %s, driver %s is not registered", FRONT_REAL_FILE, GLUE_REGISTER_NAME,
		 ops->name);
	errno = saved_errno;
}
