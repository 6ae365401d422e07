/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Several processes on one host, and on two: one registrar, handing over, taking over, sessions
 * lost and found. The processes are ctrl_peer's.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_qp.h"

#define A "127.0.0.1"
#define B "127.0.0.2"
#define C "127.0.0.3"

extern char **environ;

struct peer {
	pid_t pid;
	FILE *in;
	FILE *out;
};

static char port[8];

static int setup(void **state)
{
	(void)state;
	snprintf(port, sizeof(port), "%u", free_port());
	return 0;
}

static void peer_start_argv(struct peer *peer, char *const argv[])
{
	posix_spawn_file_actions_t actions;
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	assert_int_equal(posix_spawnp(&peer->pid, argv[0], &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	peer->in = fdopen(in[1], "w");
	peer->out = fdopen(out[0], "r");
}

static void peer_start(struct peer *peer)
{
	char *const argv[] = { getenv("CTRL_PEER"), port, NULL };

	assert_non_null(argv[0]);
	peer_start_argv(peer, argv);
}

static void ask(struct peer *peer, char *answer, const char *line)
{
	fprintf(peer->in, "%s\n", line);
	fflush(peer->in);
	answer[0] = 0;
	if (!fgets(answer, 64, peer->out))
		fail_msg("no answer to: %s", line);
	answer[strcspn(answer, "\n")] = 0;
}

#define expect(peer, right, ...) do {                                          \
	char line_[256], answer_[64];                                          \
	snprintf(line_, sizeof(line_), __VA_ARGS__);                           \
	ask(peer, answer_, line_);                                             \
	if (strcmp(answer_, right))                                            \
		fail_msg("%s: %s instead of %s", line_, answer_, right);       \
} while (0)

static void peer_close(struct peer *peer)
{
	fclose(peer->in);
	fclose(peer->out);
}

static void peer_quit(struct peer *peer)
{
	int status = -1;

	expect(peer, "ok", "quit");
	peer_close(peer);
	assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
	assert_int_equal(status, 0);
}

static void peer_kill(struct peer *peer)
{
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, NULL, 0);
	peer_close(peer);
}

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

/* The process of the peer dies: lost; a new one with the same QP, as numbers go: gone, then ready. */
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

static void peer_start_as(struct peer *peer, const char *uid)
{
	setenv("CTRL_PEER_UID", uid, 1);
	peer_start(peer);
	unsetenv("CTRL_PEER_UID");
}

/* Users do not get each other's connections; the port's owner is named, once. */
static void other_users(void **state)
{
	static const char *const uids[3] = { "65534", "65533", "0" };
	struct peer r, p[3];

	(void)state;
	if (geteuid()) {
		print_message("needs root: processes of several users\n");
		skip();
	}
	peer_start_as(&r, uids[0]);
	expect(&r, "ok", "up 0 %s 1 %s 2 1", C, C);
	sleep_ms(100);
	for (int i = 0; i < 3; i++) {
		peer_start_as(&p[i], uids[i]);
		expect(&p[i], "ok", "up 0 %s %d %s %d 1", A, 10 + i, B, 20 + i);
		expect(&p[i], "ok", "up 1 %s %d %s %d 1", B, 20 + i, A, 10 + i);
		expect(&p[i], "ok", "up 2 %s %d %s %d 1", A, 30 + i, B, 40);
		sleep_ms(700);
		/* The first is of the registrar's user. */
		expect(&p[i], i ? "1" : "0", "warnings");
		expect(&p[i], "yes", "wait 0 ready 1 3000");
	}
	/* Of these two neither can be found by connecting. */
	expect(&p[1], "ok", "up 3 %s 50 %s 60 1", A, B);
	expect(&p[2], "ok", "up 3 %s 60 %s 50 1", B, A);
	expect(&p[1], "no", "wait 3 ready 1 1000");
	expect(&p[1], "0", "warnings");
	peer_kill(&r);
	for (int i = 0; i < 3; i++)
		peer_quit(&p[i]);
}

/* A client of another user than the registrar's, who is root, is refused, and does not spin. */
static void root_is_the_registrar(void **state)
{
	struct peer r, x;
	char stat[64], line[512] = "";
	unsigned long ticks = 0;
	FILE *file;

	(void)state;
	if (geteuid()) {
		print_message("needs root: processes of several users\n");
		skip();
	}
	peer_start(&r);
	expect(&r, "ok", "up 0 %s 1 %s 2 1", C, C);
	sleep_ms(100);
	peer_start_as(&x, "65534");
	expect(&x, "ok", "up 0 %s 1 %s 2 1", A, B);
	sleep_ms(2000);
	expect(&x, "1", "warnings");
	snprintf(stat, sizeof(stat), "/proc/%d/stat", (int)x.pid);
	file = fopen(stat, "r");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	fclose(file);
	assert_int_equal(sscanf(strrchr(line, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u "
				"%*u %*u %lu", &ticks), 1);
	/* stime, in hundredths of a second. */
	assert_in_range(ticks, 0, 50);
	peer_quit(&x);
	peer_quit(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(two_processes, setup),
		cmocka_unit_test_setup(three_processes_share_the_port, setup),
		cmocka_unit_test_setup(registrar_killed, setup),
		cmocka_unit_test_setup(peer_killed_and_replaced, setup),
		cmocka_unit_test_setup(peer_stopped_and_continued, setup),
		cmocka_unit_test_setup(down_while_lost, setup),
		cmocka_unit_test_setup(fork_without_exec, setup),
		cmocka_unit_test_setup(other_users, setup),
		cmocka_unit_test_setup(root_is_the_registrar, setup),
	};

	signal(SIGPIPE, SIG_IGN);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
