/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Descriptors that stand for the kernel's event files: completion channels and async_fd.
 *
 * One descriptor must hold messages, block, poll and be closed by libibverbs, which knows of no
 * other end: a datagram socket connected to itself does that.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine.h"

#define BUFFER_BYTES (8 << 20) /* about 20,000 messages */

int event_create(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(addr.sun_family); /* no name: the kernel finds one */
	int bytes = BUFFER_BYTES;
	int fd;

	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&addr, len))
		goto err_close;
	len = sizeof(addr);
	if (getsockname(fd, (struct sockaddr *)&addr, &len) ||
	    connect(fd, (struct sockaddr *)&addr, len))
		goto err_close;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	return fd;

err_close:
	close(fd);
	return -1;
}

int event_send(int fd, const void *message, size_t size)
{
	return send(fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size ? 0 : errno;
}

uint32_t event_forget(int fd, size_t size, uint64_t element)
{
	struct message { uint64_t word[2]; } *kept = NULL, *more, m = { { 0 } };
	uint32_t forgotten = 0, num = 0, i;

	while (recv(fd, &m, size, MSG_DONTWAIT) == (ssize_t)size) {
		if (m.word[0] == element) {
			forgotten++;
			continue;
		}
		if (!(num & (num + 1))) { /* room for a power of two, less one */
			more = realloc(kept, 2 * (num + 1) * sizeof(*kept));
			if (!more)
				break;
			kept = more;
		}
		kept[num++] = m;
	}
	for (i = 0; i < num; i++)
		event_send(fd, &kept[i], size);
	free(kept);
	return forgotten;
}

int event_async(struct ibv_context *context, uint64_t element, enum ibv_event_type type)
{
	struct {
		uint64_t element;
		uint32_t type;
		uint32_t reserved;
	} message = { .element = element, .type = type };

	return event_send(context->async_fd, &message, sizeof(message));
}
