/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the provider says. It lives in other people's processes: a warning for what the operator
 * must know (a bad line in the configuration, a missing member), once per change of state, on
 * stderr like libibverbs' own; everything else through verbs_log (VERBS_LOG_LEVEL,
 * VERBS_LOG_FILE) and so silent unless asked for.
 */
#ifndef BOND_LOG_H
#define BOND_LOG_H

void bond_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void bond_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void bond_dbg(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
