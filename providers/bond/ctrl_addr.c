/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * GIDs and socket addresses. See ctrl_addr.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "ctrl_addr.h"

static struct in6_addr addr_in6(const struct addr *addr)
{
	struct in6_addr in6;

	memcpy(&in6, addr->ip, sizeof(in6));
	return in6;
}

static bool addr_link_local(const struct addr *addr)
{
	struct in6_addr in6 = addr_in6(addr);

	return IN6_IS_ADDR_LINKLOCAL(&in6);
}

int addr_from_gid(struct addr *addr, const uint8_t gid[16], uint32_t ifindex)
{
	struct in6_addr in6;
	uint32_t v4;

	memcpy(addr->ip, gid, sizeof(addr->ip));
	in6 = addr_in6(addr);
	addr->scope = addr_link_local(addr) ? ifindex : 0;
	memcpy(&v4, gid + 12, sizeof(v4));
	if (IN6_IS_ADDR_UNSPECIFIED(&in6) || IN6_IS_ADDR_MULTICAST(&in6))
		return EINVAL;
	if (IN6_IS_ADDR_V4MAPPED(&in6) && (!v4 || IN_MULTICAST(ntohl(v4)) || !~v4))
		return EINVAL;
	return 0;
}

void addr_from_socket(struct addr *addr, const struct sockaddr_storage *from)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)from;

	memset(addr, 0, sizeof(*addr));
	if (from->ss_family == AF_INET) {
		addr->ip[10] = 0xff;
		addr->ip[11] = 0xff;
		memcpy(addr->ip + 12, &in4->sin_addr, 4);
	} else if (from->ss_family == AF_INET6) {
		memcpy(addr->ip, &in6->sin6_addr, sizeof(addr->ip));
		addr->scope = addr_link_local(addr) ? in6->sin6_scope_id : 0;
	}
}

socklen_t addr_to_socket(const struct addr *addr, uint16_t port, struct sockaddr_storage *to)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;
	struct sockaddr_in *in4 = (struct sockaddr_in *)to;
	struct in6_addr ip = addr_in6(addr);

	memset(to, 0, sizeof(*to));
	if (IN6_IS_ADDR_V4MAPPED(&ip)) {
		in4->sin_family = AF_INET;
		in4->sin_port = htons(port);
		memcpy(&in4->sin_addr, addr->ip + 12, 4);
		return sizeof(*in4);
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	in6->sin6_addr = ip;
	in6->sin6_scope_id = addr->scope;
	return sizeof(*in6);
}

bool addr_equal(const struct addr *a, const struct addr *b)
{
	if (memcmp(a->ip, b->ip, sizeof(a->ip)))
		return false;
	return !a->scope || !b->scope || a->scope == b->scope;
}

const char *addr_text(const struct addr *addr, char text[ADDR_TEXT_SIZE])
{
	struct in6_addr ip = addr_in6(addr);
	char name[IF_NAMESIZE];
	size_t len;

	if (IN6_IS_ADDR_V4MAPPED(&ip))
		inet_ntop(AF_INET, addr->ip + 12, text, ADDR_TEXT_SIZE);
	else
		inet_ntop(AF_INET6, addr->ip, text, ADDR_TEXT_SIZE);
	len = strlen(text);
	if (addr->scope && if_indextoname(addr->scope, name))
		snprintf(text + len, ADDR_TEXT_SIZE - len, "%%%s", name);
	return text;
}
