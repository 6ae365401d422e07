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
 * One round over what is in the pipe now, through one of our own, so that it never blocks, however
 * the reader's descriptor is set. Whole records, as the reader takes them.
 */
static unsigned int purge_through(const int own[2], int rd_fd, int wr_fd, size_t size,
				  uint64_t element, size_t pending)
{
	uint64_t record[EVPIPE_RECORD_MAX / sizeof(uint64_t)];
	unsigned int purged = 0;
	ssize_t n;

	while (pending >= size) {
		n = splice(rd_fd, NULL, own[1], NULL, pending, SPLICE_F_NONBLOCK);
		if (n <= 0)
			break;
		pending -= n;
		while (read(own[0], record, size) == (ssize_t)size) {
			if (record[0] == element)
				purged++;
			else
				evpipe_write(wr_fd, record, size);
		}
	}
	return purged;
}

/* Where there is no descriptor to spare: the reader's own, which must not block for the moment. */
static unsigned int purge_directly(int rd_fd, int wr_fd, size_t size, uint64_t element,
				   size_t pending)
{
	uint64_t record[EVPIPE_RECORD_MAX / sizeof(uint64_t)];
	int flags = fcntl(rd_fd, F_GETFL);
	unsigned int purged = 0;

	fcntl(rd_fd, F_SETFL, flags | O_NONBLOCK);
	for (; pending >= size && read(rd_fd, record, size) == (ssize_t)size; pending -= size) {
		if (record[0] == element)
			purged++;
		else
			evpipe_write(wr_fd, record, size);
	}
	fcntl(rd_fd, F_SETFL, flags);
	return purged;
}

unsigned int evpipe_purge(int rd_fd, int wr_fd, size_t size, uint64_t element)
{
	unsigned int purged;
	int pending = 0, own[2];

	if (ioctl(rd_fd, FIONREAD, &pending) || pending < (int)size)
		return 0;
	if (pipe2(own, O_CLOEXEC | O_NONBLOCK))
		return purge_directly(rd_fd, wr_fd, size, element, pending);
	purged = purge_through(own, rd_fd, wr_fd, size, element, pending);
	close(own[0]);
	close(own[1]);
	return purged;
}
