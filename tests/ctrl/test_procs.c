/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Several processes on one host: one registrar, handing over, taking over, sessions lost and found.
 * Those of several users and hosts are in test_hosts.c.
 */
#include <signal.h>
#include <stdlib.h>

#include "fake_qp.h"
#include "peer_proc.h"

#define A "127.0.0.1"
#define B "127.0.0.2"
#define C "127.0.0.3"

static void two_processes(void **state)
{
	struct peer x, y;

	(void)state;
	peer_start(&x);
	peer_start(&y);
	expect(&x, "ok", "up 0 %s 10 %s 20 1", A, B);
	expect(&y, "ok", "up 0 %s 20 %s 10 1", B, A);
	expect(&x, "yes", "wait 0 ready 1 3000");
	expect(&y, "yes", "wait 0 ready 1 3000");
	expect(&x, "3", "mask 0");
	expect(&y, "ok", "key 512 7 2");
	expect(&x, "ok", "ask 0 512");
	expect(&x, "yes", "wait 0 learned 1 3000");
	expect(&x, "512 2", "learned 0");
	expect(&y, "ok", "withdraw 512 7");
	expect(&x, "yes", "wait 0 withdrawn 1 3000");
	expect(&y, "0", "count 0 lost");
	peer_quit(&x);
	expect(&y, "yes", "wait 0 gone 1 3000");
	peer_quit(&y);
}

/* One holds the port for all three; each pair is of two processes, whichever holds it. */
static void three_processes_share_the_port(void **state)
{
	struct peer p[3];
	static const char *const ip[3] = { A, B, C };

	(void)state;
	for (int i = 0; i < 3; i++)
		peer_start(&p[i]);
	for (int i = 0; i < 3; i++) {
		int next = (i + 1) % 3;

		/* QP i of process i with QP 10+i of the next. */
		expect(&p[i], "ok", "up 0 %s %d %s %d 1", ip[i], 100 + i, ip[next], 200 + i);
		expect(&p[next], "ok", "up 1 %s %d %s %d 1", ip[next], 200 + i, ip[i], 100 + i);
	}
	for (int i = 0; i < 3; i++) {
		expect(&p[i], "yes", "wait 0 ready 1 3000");
		expect(&p[i], "yes", "wait 1 ready 1 3000");
		expect(&p[i], "0", "warnings");
	}
	for (int i = 0; i < 3; i++)
		peer_quit(&p[i]);
}

/* The registrar dies; the others' session stays, and one of them hands over the next connection. */
static void registrar_killed(void **state)
{
	struct peer r, x, y, z;

	(void)state;
	peer_start(&r);
	expect(&r, "ok", "up 0 %s 1 %s 2 1", C, C);
	sleep_ms(100);
	peer_start(&x);
	peer_start(&y);
	expect(&x, "ok", "up 0 %s 10 %s 20 1", A, B);
	expect(&y, "ok", "up 0 %s 20 %s 10 1", B, A);
	expect(&x, "yes", "wait 0 ready 1 3000");
	expect(&y, "yes", "wait 0 ready 1 3000");
	peer_kill(&r);
	/* A new process pairs with each of the two: both must have registered again. */
	peer_start(&z);
	expect(&z, "ok", "up 0 %s 30 %s 11 1", C, A);
	expect(&x, "ok", "up 1 %s 11 %s 30 1", A, C);
	expect(&z, "ok", "up 1 %s 31 %s 21 1", C, B);
	expect(&y, "ok", "up 1 %s 21 %s 31 1", B, C);
	expect(&z, "yes", "wait 0 ready 1 3000");
	expect(&z, "yes", "wait 1 ready 1 3000");
	expect(&x, "yes", "wait 1 ready 1 3000");
	expect(&y, "yes", "wait 1 ready 1 3000");
	expect(&x, "0", "count 0 lost");
	expect(&y, "0", "count 0 lost");
	/* And again: two of three go, each of which may be the registrar. */
	peer_kill(&x);
	peer_kill(&z);
	expect(&y, "yes", "wait 0 lost 1 3000");
	peer_start(&x);
	expect(&x, "ok", "up 2 %s 12 %s 22 1", A, B);
	expect(&y, "ok", "up 2 %s 22 %s 12 1", B, A);
	expect(&x, "yes", "wait 2 ready 1 3000");
	expect(&y, "yes", "wait 2 ready 1 3000");
	expect(&y, "0", "warnings");
	peer_quit(&x);
	peer_quit(&y);
}

/* The peer's process dies: lost; a new one with a QP of the same number: gone, then ready. */
static void peer_killed_and_replaced(void **state)
{
	struct peer x, y;

	(void)state;
	peer_start(&x);
	peer_start(&y);
	expect(&x, "ok", "up 0 %s 10 %s 20 1", A, B);
	expect(&y, "ok", "up 0 %s 20 %s 10 1", B, A);
	expect(&x, "yes", "wait 0 ready 1 3000");
	expect(&y, "yes", "wait 0 ready 1 3000");
	peer_kill(&y);
	expect(&x, "yes", "wait 0 lost 1 3000");
	expect(&x, "0", "count 0 gone");
	peer_start(&y);
	expect(&y, "ok", "up 0 %s 20 %s 10 1", B, A);
	expect(&y, "yes", "wait 0 ready 1 3000");
	expect(&x, "yes", "wait 0 ready 2 3000");
	expect(&x, "1", "count 0 gone");
	peer_quit(&x);
	peer_quit(&y);
}

/* A peer that is stopped is silent: the session is lost, and comes back with the pair unbroken. */
static void peer_stopped_and_continued(void **state)
{
	struct peer x, y;

	(void)state;
	peer_start(&x);
	peer_start(&y);
	expect(&x, "ok", "up 0 %s 10 %s 20 1", A, B);
	expect(&y, "ok", "up 0 %s 20 %s 10 1", B, A);
	expect(&x, "yes", "wait 0 ready 1 3000");
	expect(&y, "yes", "wait 0 ready 1 3000");
	expect(&x, "ok", "key 512 7 2");
	expect(&y, "ok", "ask 0 512");
	expect(&y, "yes", "wait 0 learned 1 3000");
	kill(y.pid, SIGSTOP);
	expect(&x, "yes", "wait 0 lost 1 5000");
	/* Withdrawn while it cannot hear: no live session waits, and it is told afterwards. */
	expect(&x, "ok", "withdraw 512 7");
	expect(&x, "no", "withdrawing 512 7");
	kill(y.pid, SIGCONT);
	expect(&x, "yes", "wait 0 back 1 8000");
	expect(&y, "yes", "wait 0 back 1 3000");
	expect(&y, "yes", "wait 0 withdrawn 1 3000");
	expect(&x, "0", "count 0 gone");
	expect(&y, "0", "count 0 gone");
	expect(&x, "ok", "key 513 7 2");
	expect(&y, "ok", "ask 0 513");
	expect(&y, "yes", "wait 0 learned 2 3000");
	peer_quit(&x);
	peer_quit(&y);
}

/* While a QP was out of reach it went down: its peer learns of it when the process is found. */
static void down_while_lost(void **state)
{
	struct peer x, y;

	(void)state;
	peer_start(&x);
	peer_start(&y);
	for (int i = 0; i < 2; i++) {
		expect(&x, "ok", "up %d %s %d %s %d 1", i, A, 10 + i, B, 20 + i);
		expect(&y, "ok", "up %d %s %d %s %d 1", i, B, 20 + i, A, 10 + i);
		expect(&x, "yes", "wait %d ready 1 3000", i);
		expect(&y, "yes", "wait %d ready 1 3000", i);
	}
	kill(y.pid, SIGSTOP);
	expect(&x, "yes", "wait 0 lost 1 5000");
	expect(&x, "ok", "down 0");
	kill(y.pid, SIGCONT);
	expect(&y, "yes", "wait 1 back 1 8000");
	expect(&y, "yes", "wait 0 gone 1 3000");
	expect(&y, "0", "count 1 gone");
	peer_quit(&x);
	peer_quit(&y);
}

/* The child closes what it got: it neither holds the port nor a session when the parent is gone. */
static void fork_without_exec(void **state)
{
	struct peer x, y, z;

	(void)state;
	peer_start(&x);
	expect(&x, "ok", "up 0 %s 10 %s 20 1", A, B);
	expect(&x, "ok", "fork");
	peer_quit(&x);
	setenv("CTRL_PEER_LINGER", "1", 1);
	peer_start(&x);
	unsetenv("CTRL_PEER_LINGER");
	expect(&x, "ok", "up 0 %s 10 %s 20 1", A, B);
	peer_start(&y);
	expect(&y, "ok", "up 0 %s 20 %s 10 1", B, A);
	expect(&x, "yes", "wait 0 ready 1 3000");
	expect(&x, "ok", "fork");
	peer_kill(&x);
	expect(&y, "yes", "wait 0 lost 1 3000");
	peer_start(&z);
	expect(&z, "ok", "up 0 %s 11 %s 21 1", A, B);
	expect(&y, "ok", "up 1 %s 21 %s 11 1", B, A);
	expect(&z, "yes", "wait 0 ready 1 3000");
	expect(&y, "0", "warnings");
	peer_quit(&y);
	peer_quit(&z);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(two_processes, peer_setup),
		cmocka_unit_test_setup(three_processes_share_the_port, peer_setup),
		cmocka_unit_test_setup(registrar_killed, peer_setup),
		cmocka_unit_test_setup(peer_killed_and_replaced, peer_setup),
		cmocka_unit_test_setup(peer_stopped_and_continued, peer_setup),
		cmocka_unit_test_setup(down_while_lost, peer_setup),
		cmocka_unit_test_setup(fork_without_exec, peer_setup),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
