/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A program and a driver of layout 59 in one, linked to a libibverbs of layout 59. Says how many
 * drivers the front, if there is one, has seen in the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "front.h"

struct verbs_device_ops {
	const char *name;
};

void ibv_reg_mr_ex(void);
void verbs_register_driver_59(const struct verbs_device_ops *ops);

int main(void)
{
	static const struct verbs_device_ops ops = { .name = "driver-of-59" };
	const struct verbs_device_ops *drivers[4];
	front_drivers_fn *front_drivers;

	ibv_reg_mr_ex();
	verbs_register_driver_59(&ops);
	*(void **)&front_drivers = dlsym(RTLD_DEFAULT, FRONT_DRIVERS_NAME);
	if (front_drivers)
		printf("front saw %zu\n", front_drivers(drivers, 4));
	return 0;
}
