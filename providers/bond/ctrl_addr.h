/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The IP address behind a GID. RoCE GIDs are IPv6 addresses, those of IPv4 mapped ones. Pure.
 */
#ifndef BOND_CTRL_ADDR_H
#define BOND_CTRL_ADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define ADDR_TEXT_SIZE 64

struct addr {
	uint8_t ip[16];
	uint32_t scope;		/* ifindex of a link-local address, else 0 */
};

/* EINVAL: no address that a connection can be made to (none, multicast). */
int addr_from_gid(struct addr *addr, const uint8_t gid[16], uint32_t ifindex);
void addr_from_socket(struct addr *addr, const struct sockaddr_storage *from);
/*
 * port: host byte order. Returns the length of the result. IPv4 addresses become AF_INET ones: IPv6
 * may be switched off.
 */
socklen_t addr_to_socket(const struct addr *addr, uint16_t port, struct sockaddr_storage *to);
/* Scopes count where both are known. */
bool addr_equal(const struct addr *a, const struct addr *b);
const char *addr_text(const struct addr *addr, char text[ADDR_TEXT_SIZE]);

#endif
