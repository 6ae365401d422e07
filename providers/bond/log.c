/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See log.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "log.h"
#include "verbs_private.h"

enum { LOG_LINE_MAX = 512 };

void bond_warn(const char *fmt, ...)
{
	char line[LOG_LINE_MAX];
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fprintf(stderr, "rdma-bond: %s\n", line);
	errno = saved;
}

/* __verbs_log() uses its context for nothing; the level decides whether it prints. */
static void log_verbs(uint32_t level, const char *fmt, va_list ap)
{
	char line[LOG_LINE_MAX];
	int saved = errno;

	if (!__verbs_log)	/* before rdma-core 37 */
		return;
	vsnprintf(line, sizeof(line), fmt, ap);
	__verbs_log(NULL, level, "rdma-bond: %s\n", line);
	errno = saved;
}

void bond_info(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_verbs(VERBS_LOG_INFO, fmt, ap);
	va_end(ap);
}

void bond_dbg(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_verbs(VERBS_LOG_DEBUG, fmt, ap);
	va_end(ap);
}
