/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the compiler of rdma-core itself says about each layout on a 64-bit machine: sizes, and the
 * places of members that the changes between layouts move. A row dropped from verbs_ops.h, or one
 * that stands a line too low, does not compile. Nothing here ends up in a library.
 */
#include "glue.h"

#if __SIZEOF_POINTER__ == 8

#define FACT(a, b) _Static_assert((a) == (b), "layout " GLUE_STR(BOND_LAYOUT))
#define SLOT(op) (offsetof(struct verbs_context_ops, op) / sizeof(void (*)(void)))

/* Operations in all; the slots of some that stand before and after what came later. */
#define OPS_FACTS(all, fc, mc, pc, qs, rm, se) \
	FACT(sizeof(struct verbs_context_ops), (all) * sizeof(void (*)(void))); \
	FACT(SLOT(free_context), fc); \
	FACT(SLOT(modify_cq), mc); \
	FACT(SLOT(poll_cq), pc); \
	FACT(SLOT(query_srq), qs); \
	FACT(SLOT(reg_mr), rm); \
	FACT(SLOT(set_ece), se); \
	FACT(SLOT(unimport_pd), (all) - 1)

FACT(SLOT(advise_mr), 0);
FACT(sizeof(struct verbs_device_ops), 72);
FACT(sizeof(struct verbs_device), 712);
FACT(offsetof(struct verbs_device, core_support), 704);
FACT(sizeof(struct verbs_match_ent), 24);
FACT(sizeof(struct verbs_mr), 56);

#if BOND_LAYOUT == 34
FACT(sizeof(struct verbs_sysfs_dev), 984);
FACT(offsetof(struct verbs_sysfs_dev, abi_ver), 964);
#else
FACT(sizeof(struct verbs_sysfs_dev), 992);
FACT(offsetof(struct verbs_sysfs_dev, abi_ver), 968);
#endif

#if BOND_LAYOUT == 34
OPS_FACTS(73, 39, 44, 52, 62, 66, 70);
#elif BOND_LAYOUT == 35
OPS_FACTS(75, 39, 45, 53, 63, 67, 71);
#elif BOND_LAYOUT == 36 || BOND_LAYOUT == 57
OPS_FACTS(76, 39, 45, 53, 64, 68, 72);
#elif BOND_LAYOUT == 59
OPS_FACTS(79, 41, 47, 55, 66, 70, 75);
#elif BOND_LAYOUT == 62
OPS_FACTS(81, 42, 48, 56, 68, 72, 77);
#elif BOND_LAYOUT == 64
OPS_FACTS(83, 44, 50, 58, 70, 74, 79);
#elif BOND_LAYOUT == 65
OPS_FACTS(93, 46, 54, 62, 76, 82, 88);
#endif

/* The public context grew at its head, too: the headers must be those of the layout. */
#ifndef GLUE_FOREIGN_LAYOUT
#if BOND_LAYOUT < 59
FACT(sizeof(struct verbs_context), 648);
#elif BOND_LAYOUT < 62
FACT(sizeof(struct verbs_context), 672);
#elif BOND_LAYOUT < 64
FACT(sizeof(struct verbs_context), 680);
#else
FACT(sizeof(struct verbs_context), 696);
#endif
#endif

#endif
