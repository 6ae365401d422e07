/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One control port per host, many processes behind it. The process that holds the port is the
 * registrar: it reads the first message of each connection and hands the connection to the process
 * that has registered the QP asked for, as a descriptor over a unix socket. All others are its
 * clients. When it goes, one of them takes its place.
 *
 * Lives in the control thread. What happens to a connection after it has found its process:
 * ctrl_greet.c.
 */
#ifndef BOND_REGISTRAR_H
#define BOND_REGISTRAR_H

#include "ctrl_conn.h"

struct registrar;
struct registrar_entry;

struct registrar_ops {
	/* Does this process own that QP? */
	bool (*owns)(void *arg, const uint8_t gid[16], uint32_t qpn);
	/* A connection for this process; it is the callee's now. raw: the bytes of hello. */
	void (*connection)(void *arg, struct conn *conn, const struct wire_hello *hello,
			   const uint8_t *raw, size_t len);
	void (*warn)(void *arg, const char *line);
};

struct registrar_config {
	struct loop *loop;
	uint16_t port;		/* control_port, host byte order, not 0 */
	uint32_t greet_ms;	/* how long a connection, or the registrar, may take to speak */
	const struct registrar_ops *ops;
	void *arg;
};

/* Does nothing yet: the first entry starts it. NULL with errno. */
struct registrar *registrar_create(const struct registrar_config *config);
void registrar_destroy(struct registrar *registrar);

/* Makes a QP of this process known to the host's registrar. NULL: no memory. */
struct registrar_entry *registrar_add(struct registrar *registrar, const uint8_t gid[16],
				      uint32_t qpn);
void registrar_remove(struct registrar *registrar, struct registrar_entry *entry);

#endif
