/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Preloaded: stands before two functions of libibverbs, and passes on what the environment does
 * not ask it to spoil.
 *   SPOIL_OPS        bond0's operations are set nowhere, as in a context of another layout
 *   SPOIL_CHANNEL=N  the N-th completion channel cannot be made
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_private.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void verbs_set_ops(struct verbs_context *context, const struct verbs_context_ops *ops)
{
	void (*real)(struct verbs_context *, const struct verbs_context_ops *);

	if (getenv("SPOIL_OPS") && !strcmp(context->context.device->name, "bond0"))
		return;
	*(void **)&real = dlvsym(RTLD_NEXT, "verbs_set_ops", GLUE_PRIVATE_NODE);
	real(context, ops);
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	static int calls;
	struct ibv_comp_channel *(*real)(struct ibv_context *);
	const char *nth = getenv("SPOIL_CHANNEL");

	if (nth && ++calls == atoi(nth)) {
		errno = EMFILE;
		return NULL;
	}
	*(void **)&real = dlvsym(RTLD_NEXT, "ibv_create_comp_channel", "IBVERBS_1.0");
	return real(context);
}
