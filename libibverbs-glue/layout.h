/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which private ABI of libibverbs this build speaks: the layout number, and what follows from it.
 *
 * BOND_LAYOUT is the first rdma-core release that has the layout: 34, 35, 36, 57, 59, 62, 64, 65.
 * The version that libibverbs puts on its private symbols (its PABI) is coarser: three layouts
 * carry 34 and two carry 59. CMake picks the layout of the installed libibverbs; layout_check.c
 * makes sure at load that the libibverbs of this process has the same.
 *
 * Not here: the structures themselves, see verbs_private.h. No file outside libibverbs-glue/ may
 * test BOND_LAYOUT.
 */
#ifndef GLUE_LAYOUT_H
#define GLUE_LAYOUT_H

#ifndef BOND_LAYOUT
#error "BOND_LAYOUT is not set; link with the CMake target glue"
#endif

#if BOND_LAYOUT == 34 || BOND_LAYOUT == 35 || BOND_LAYOUT == 36
#define IBVERBS_PABI 34
#elif BOND_LAYOUT == 57
#define IBVERBS_PABI 57
#elif BOND_LAYOUT == 59 || BOND_LAYOUT == 62
#define IBVERBS_PABI 59
#elif BOND_LAYOUT == 64
#define IBVERBS_PABI 64
#elif BOND_LAYOUT == 65
#define IBVERBS_PABI 65
#else
#error "BOND_LAYOUT is not one of 34, 35, 36, 57, 59, 62, 64, 65"
#endif

/* GLUE_SINCE_n(x) is x in layout n and later, nothing before. */
#if BOND_LAYOUT >= 35
#define GLUE_SINCE_35(...) __VA_ARGS__
#else
#define GLUE_SINCE_35(...)
#endif
#if BOND_LAYOUT >= 36
#define GLUE_SINCE_36(...) __VA_ARGS__
#else
#define GLUE_SINCE_36(...)
#endif
#if BOND_LAYOUT >= 59
#define GLUE_SINCE_59(...) __VA_ARGS__
#else
#define GLUE_SINCE_59(...)
#endif
#if BOND_LAYOUT >= 62
#define GLUE_SINCE_62(...) __VA_ARGS__
#else
#define GLUE_SINCE_62(...)
#endif
#if BOND_LAYOUT >= 64
#define GLUE_SINCE_64(...) __VA_ARGS__
#else
#define GLUE_SINCE_64(...)
#endif
#if BOND_LAYOUT >= 65
#define GLUE_SINCE_65(...) __VA_ARGS__
#else
#define GLUE_SINCE_65(...)
#endif

#define GLUE_STR_(x) #x
#define GLUE_STR(x) GLUE_STR_(x)
#define GLUE_CAT_(a, b) a##b
#define GLUE_CAT(a, b) GLUE_CAT_(a, b)

/* "verbs_register_driver_34" and "IBVERBS_PRIVATE_34" */
#define GLUE_REGISTER_SYMBOL GLUE_CAT(verbs_register_driver_, IBVERBS_PABI)
#define GLUE_REGISTER_NAME GLUE_STR(GLUE_REGISTER_SYMBOL)
#define GLUE_PRIVATE_NODE "IBVERBS_PRIVATE_" GLUE_STR(IBVERBS_PABI)

#endif
