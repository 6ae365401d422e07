/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See evpipe.h. Purgers of one pipe are serialized by their callers. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
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

/*
 * Moves what is in the pipe into one of our own, however the reader's descriptor is set: never
 * blocks, and takes whole records, as the reader does.
 */
static size_t take_all(int rd_fd, int to_fd, size_t size)
{
	int pending = 0;
	size_t taken = 0;
	ssize_t n;

	if (ioctl(rd_fd, FIONREAD, &pending) || pending < (int)size)
		return 0;
	while (taken < (size_t)pending) {
		n = splice(rd_fd, NULL, to_fd, NULL, pending - taken, SPLICE_F_NONBLOCK);
		if (n <= 0)
			break;
		taken += n;
	}
	return taken;
}

unsigned int evpipe_purge(int rd_fd, int wr_fd, size_t size, uint64_t element)
{
	uint64_t record[EVPIPE_RECORD_MAX / sizeof(uint64_t)];
	unsigned int purged = 0;
	int own[2];

	if (pipe2(own, O_CLOEXEC | O_NONBLOCK))
		return 0;
	fcntl(own[0], F_SETPIPE_SZ, fcntl(rd_fd, F_GETPIPE_SZ));
	if (take_all(rd_fd, own[1], size))
		while (read(own[0], record, size) == (ssize_t)size) {
			if (record[0] == element)
				purged++;
			else
				evpipe_write(wr_fd, record, size);
		}
	close(own[0]);
	close(own[1]);
	return purged;
}
