/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Epoll sets hold what a descriptor was when it was added, not its number. Where the application
 * has its channel in one before the first CQ, the exchange in channel.c would leave it deaf.
 */
#ifndef BOND_CHANNEL_EPOLL_H
#define BOND_CHANNEL_EPOLL_H

struct epoll_seats;

/* Takes @fd out of every epoll set of this process that has it. NULL: it was in none. */
struct epoll_seats *epoll_leave(int fd);
/* Puts it back with the events and data it had. Frees @seats. */
void epoll_return(struct epoll_seats *seats, int fd);

#endif
