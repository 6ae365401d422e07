/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ctrl_peer processes, for tests: starting them, talking to them, ending them.
 */
#ifndef TESTS_CTRL_PEER_PROC_H
#define TESTS_CTRL_PEER_PROC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

struct peer {
	pid_t pid;
	FILE *in;
	FILE *out;
};

/* The control port of the test that runs; a new one for each by peer_setup(). */
extern char peer_port[8];
int peer_setup(void **state);

void peer_start(struct peer *peer);
void peer_start_as(struct peer *peer, const char *uid);
/* In a network name space of its own. */
void peer_start_in_net(struct peer *peer);
/* It must end in order. */
void peer_quit(struct peer *peer);
void peer_kill(struct peer *peer);
void peer_ask(struct peer *peer, char answer[64], const char *line);

#define expect(peer, right, ...) do {                                          \
	char line_[256], answer_[64];                                          \
	snprintf(line_, sizeof(line_), __VA_ARGS__);                           \
	peer_ask(peer, answer_, line_);                                        \
	if (strcmp(answer_, right))                                            \
		fail_msg("%s: %s instead of %s", line_, answer_, right);       \
} while (0)

#endif
