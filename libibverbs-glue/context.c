/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The part of a context that libibverbs keeps for itself. We read the driver id in it and check
 * that it is where we think; how to open and close contexts is in private_device.c.
 */
#include <limits.h>

#include "glue.h"

#define OP_COUNT_ONE(type, name, args) +1
enum { OPS_COUNT = 0 VERBS_OPS(OP_COUNT_ONE) };
#undef OP_COUNT_ONE

_Static_assert(sizeof(struct verbs_context_ops) == OPS_COUNT * sizeof(void (*)(void)),
	       "an operation is a function pointer");

#define LONG_BITS (sizeof(unsigned long) * CHAR_BIT)

/* One bit for each operation stands first: the driver id moves when their number passes 64. */
struct verbs_ex_private {
	unsigned long unsupported_ioctls[(OPS_COUNT + LONG_BITS - 1) / LONG_BITS];
	uint32_t driver_id;
	bool use_ioctl_write;
	struct verbs_context_ops ops;
	bool imported;
};

uint32_t glue_context_driver_id(struct ibv_context *context)
{
	return to_verbs_context(context)->priv->driver_id;
}

bool glue_context_check(struct ibv_context *context, const struct verbs_context_ops *ops,
			uint32_t driver_id)
{
	const struct verbs_ex_private *priv = to_verbs_context(context)->priv;

	if (priv->driver_id != driver_id)
		return false;
#define OP_DIFFERS(type, name, args) \
	if (ops->name && priv->ops.name != ops->name) \
		return false;
	VERBS_OPS(OP_DIFFERS)
#undef OP_DIFFERS
	return true;
}
