/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See evpipe.h. Writers and purgers of one pipe are serialized by their callers. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "evpipe.h"

int evpipe_write(int wr_fd, const void *record, size_t size)
{
	ssize_t n;

	do
		n = write(wr_fd, record, size);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)size ? 0 : EAGAIN;
}

static bool evpipe_readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1 && pfd.revents & POLLIN;
}

void evpipe_purge(int rd_fd, int wr_fd, size_t size, uint64_t element)
{
	uint64_t marker[EVPIPE_RECORD_MAX / sizeof(uint64_t)] = { 0 };
	uint64_t record[EVPIPE_RECORD_MAX / sizeof(uint64_t)];

	/* One round, to a record of no element, so that order is kept and the round ends. */
	if (!evpipe_readable(rd_fd) || evpipe_write(wr_fd, marker, size))
		return;
	while (evpipe_readable(rd_fd) && read(rd_fd, record, size) == (ssize_t)size) {
		if (!record[0])
			return;
		if (record[0] != element)
			evpipe_write(wr_fd, record, size);
	}
}
