/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See channel_epoll.h. What is in which epoll set is told by /proc/self/fdinfo. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "channel_epoll.h"

struct epoll_seats {
	struct epoll_seats *next;
	int epoll_fd;
	struct epoll_event event;
};

static void seats_of(int epoll_fd, int fd, struct epoll_seats **seats)
{
	char path[64], line[256];
	unsigned long long data;
	unsigned int events;
	int target;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epoll_fd);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		struct epoll_seats *seat;

		if (sscanf(line, "tfd: %d events: %x data: %llx", &target, &events, &data) != 3 ||
		    target != fd)
			continue;
		seat = calloc(1, sizeof(*seat));
		if (!seat)
			break;
		seat->epoll_fd = epoll_fd;
		seat->event.events = events;
		seat->event.data.u64 = data;
		if (epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL)) {
			/* Another's descriptor of the same number, from before a close. */
			free(seat);
			continue;
		}
		seat->next = *seats;
		*seats = seat;
	}
	fclose(f);
}

struct epoll_seats *epoll_leave(int fd)
{
	struct epoll_seats *seats = NULL;
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/fdinfo");

	if (!dir)
		return NULL;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			seats_of(atoi(entry->d_name), fd, &seats);
	closedir(dir);
	return seats;
}

void epoll_return(struct epoll_seats *seats, int fd)
{
	while (seats) {
		struct epoll_seats *next = seats->next;

		epoll_ctl(seats->epoll_fd, EPOLL_CTL_ADD, fd, &seats->event);
		free(seats);
		seats = next;
	}
}
