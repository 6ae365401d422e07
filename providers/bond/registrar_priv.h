/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the two halves of the registrar share: registrar_server.c (holding the port) and
 * registrar.c (being a client, and changing from one to the other).
 */
#ifndef BOND_REGISTRAR_PRIV_H
#define BOND_REGISTRAR_PRIV_H

#include <sys/un.h>

#include "ctrl_name.h"
#include "registrar.h"

/* On the unix socket, between processes of one host: in the host's own byte order. */
enum local_op {
	LOCAL_ADD = 0x52420101,		/* the version is in it */
	LOCAL_REMOVE = 0x52420102,
	LOCAL_HAND = 0x52420103,	/* one descriptor comes with it, and the HELLO behind it */
	LOCAL_WELCOME = 0x52420104,	/* the registrar accepts this client */
};

struct local_msg {
	uint32_t op;
	uint32_t qpn;
	uint8_t gid[16];
};

enum registrar_state {
	REGISTRAR_OFF,		/* no entry yet */
	REGISTRAR_TRYING,	/* retry timer runs */
	REGISTRAR_ASKING,	/* connected to the registrar; its WELCOME is awaited, for a time */
	REGISTRAR_SERVER,
	REGISTRAR_CLIENT,
};

enum entry_state {
	ENTRY_NEW,		/* the registrar has not been told */
	ENTRY_KNOWN,
	ENTRY_REMOVED,		/* freed as soon as the registrar has been told */
};

struct registrar_entry {
	struct ring node;	/* on entries, or on untold */
	enum entry_state state;
	uint32_t qpn;
	uint8_t gid[16];
};

struct registrar {
	struct registrar_config config;
	enum registrar_state state;
	struct loop_timer retry;	/* while asking: how long the answer may take */
	uint32_t backoff_ms;
	bool warned;

	/* As a client. */
	struct loop_watch to_server;
	struct ring entries;
	struct ring untold;		/* in the order in which to tell them */

	/* As the server. */
	struct loop_watch port4or6;
	struct loop_watch local;
	struct loop_timer resume;	/* accepting again, after descriptors ran out */
	struct ring clients;
	struct ring visitors;		/* whose first message is awaited, oldest first */
	unsigned int nvisitors;
	struct qp_names remote;		/* QPs of the clients */
};

socklen_t registrar_local_name(uint16_t port, struct sockaddr_un *sa);
bool registrar_trusts(int fd, uint32_t *uid);

void registrar_server_init(struct registrar *registrar);
/* EADDRINUSE: someone else is, or is about to be, the registrar. */
int registrar_server_open(struct registrar *registrar);
void registrar_server_close(struct registrar *registrar);

#endif
