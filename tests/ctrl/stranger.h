/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Somebody who talks to the control port by hand, from any address of this host.
 */
#ifndef TESTS_CTRL_STRANGER_H
#define TESTS_CTRL_STRANGER_H

#include "two.h"

/* A connection to the port, at A. */
int stranger(const char *from);
void put(int fd, const void *bytes, size_t len);
void put_msg(int fd, const struct wire_msg *msg);
/* 1: one message; 0, -1: as recv() says at the end of the stream; -2: too late; -3: nonsense. */
int get_msg(int fd, struct wire_msg *msg, int ms);
/* The next message of that type, others are passed over. */
void get_type(int fd, struct wire_msg *msg, enum wire_type type);
bool closed_within(int fd, int ms);
/* For the process of x, which has QP 10 at A. */
void hello_to(struct wire_msg *msg, uint64_t nonce, uint32_t qpn);
/* As far as HELLO_ACK, with the process that has this QP. */
int stranger_hello(const char *from, uint64_t nonce, const struct fake_qp *qp,
		   struct wire_msg *ack);
/* It becomes a session (there is no secret) with the process that has this QP. */
int stranger_session_to(const char *from, uint64_t nonce, const struct fake_qp *qp);
int stranger_session(const char *from, uint64_t nonce);
/* A message to qp from the QP that it is connected to. */
void qp_msg_to(const struct fake_qp *qp, enum wire_type type, uint32_t generation,
	       struct wire_msg *msg);

#endif
