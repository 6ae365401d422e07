/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A process with a control channel and QPs that are none, led by lines on its standard input; each
 * is answered by one line. For tests that need several processes or name spaces.
 *
 *	up ID IP QPN DEST_IP DEST_QPN GENERATION	ok
 *	on IFNAME					ok: where link-local addresses are meant
 *	down ID						ok
 *	wait ID EVENT COUNT MS				yes | no
 *	count ID EVENT					NUMBER
 *	mask ID						NUMBER
 *	key RKEY PD N					ok
 *	ask ID RKEY					ok
 *	learned ID					RKEY NKEYS
 *	withdraw RKEY PD				ok, and the key is gone
 *	withdrawing RKEY PD				yes | no
 *	warnings					NUMBER
 *	fork						ok if a child could not use the channel
 *	quit
 */
#include <errno.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_qp.h"

#define QPS 64

static struct ctrl *ctrl;
static struct fake_qp qps[QPS];
static unsigned int ifindex;

static void cmd_up(const char *line)
{
	char ip[64], dest_ip[64];
	unsigned int id, qpn, dest_qpn, generation;

	if (sscanf(line, "up %u %63s %u %63s %u %u", &id, ip, &qpn, dest_ip, &dest_qpn,
		   &generation) != 6 || id >= QPS)
		abort();
	fake_init(&qps[id], ip, qpn, dest_ip, dest_qpn, generation);
	qps[id].info.ifindex = ifindex;
	fake_up(ctrl, &qps[id]);
	puts("ok");
}

static enum fake_event event_of(const char *name)
{
	static const char *const names[FAKE_EVENTS] = {
		"describe", "offer", "answer", "ready", "gone", "error",
		"lost", "back", "lookup", "learned", "withdrawn",
	};

	for (int i = 0; i < FAKE_EVENTS; i++)
		if (!strcmp(names[i], name))
			return (enum fake_event)i;
	abort();
}

static bool cmd_qp(const char *line)
{
	char name[32];
	unsigned int id, count, ms;

	if (sscanf(line, "wait %u %31s %u %u", &id, name, &count, &ms) == 4)
		puts(fake_wait(&qps[id], event_of(name), count, ms) ? "yes" : "no");
	else if (sscanf(line, "count %u %31s", &id, name) == 2)
		printf("%u\n", fake_count(&qps[id], event_of(name)));
	else if (sscanf(line, "mask %u", &id) == 1)
		printf("%u\n", qps[id].mask);
	else if (sscanf(line, "learned %u", &id) == 1)
		printf("%u %u\n", qps[id].learned_rkey, qps[id].learned_nkeys);
	else
		return false;
	return true;
}

static bool cmd_key(const char *line)
{
	unsigned int id, rkey, pd, n;

	if (sscanf(line, "key %u %u %u", &rkey, &pd, &n) == 3) {
		fake_key_add(rkey, pd, n);
		puts("ok");
	} else if (sscanf(line, "ask %u %u", &id, &rkey) == 2) {
		ctrl_key_ask(qps[id].qp, rkey);
		puts("ok");
	} else if (sscanf(line, "withdraw %u %u", &rkey, &pd) == 2) {
		fake_key_remove(rkey);
		ctrl_key_withdraw(ctrl, rkey, pd);
		puts("ok");
	} else if (sscanf(line, "withdrawing %u %u", &rkey, &pd) == 2) {
		puts(ctrl_key_withdrawing(ctrl, rkey, pd) ? "yes" : "no");
	} else {
		return false;
	}
	return true;
}

/* Descriptors that were open before there was a channel. */
static int fds_before;

/* In the child every call must return at once, and no descriptor of ours may be open. */
static void child_main(void)
{
	struct fake_qp other;
	int ok;

	ctrl_fork_child(ctrl);
	fake_init(&other, "127.0.0.1", 1, "127.0.0.1", 2, 1);
	ok = !ctrl_qp_up(ctrl, &other.info, &other) && errno == ENODEV && fds_open() == fds_before;
	ctrl_key_withdraw(ctrl, 1, 1);
	ok = ok && !ctrl_key_withdrawing(ctrl, 1, 1);
	for (int i = 0; i < QPS; i++) {
		if (!qps[i].qp)
			continue;
		ctrl_key_ask(qps[i].qp, 1);
		ctrl_qp_error(qps[i].qp, 1);
		ctrl_qp_down(qps[i].qp);
	}
	ctrl_destroy(ctrl);
	/* Time for the parent to go first: nothing of it may live on here. */
	if (ok && getenv("CTRL_PEER_LINGER")) {
		for (int fd = 0; fd < 3; fd++)
			close(fd);
		sleep(10);
	}
	_exit(ok ? 0 : 1);
}

static void cmd_fork(void)
{
	int status = 0;
	pid_t pid;

	ctrl_fork_prepare(ctrl);
	pid = fork();
	if (!pid)
		child_main();
	ctrl_fork_parent(ctrl);
	if (getenv("CTRL_PEER_LINGER")) {
		puts("ok");
		return;
	}
	waitpid(pid, &status, 0);
	puts(status ? "failed" : "ok");
}

static void quit(void)
{
	for (int i = 0; i < QPS; i++)
		fake_end(&qps[i]);
	ctrl_destroy(ctrl);
	puts("ok");
	exit(0);
}

int main(int argc, char **argv)
{
	struct auth_key key = { 0 };
	char line[256], why[256];
	unsigned int id;

	if (argc < 2)
		return 2;
	/* Also when it is stopped, and the test has failed. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getenv("CTRL_PEER_UID") && setuid((uid_t)atoi(getenv("CTRL_PEER_UID"))))
		return 2;
	if (argc > 2 && auth_key_load(argv[2], &key, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	fds_before = fds_open();
	ctrl = fake_ctrl((uint16_t)atoi(argv[1]), argc > 2 ? &key : NULL);
	if (!ctrl)
		return 2;
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "up ", 3)) {
			cmd_up(line);
		} else if (sscanf(line, "down %u", &id) == 1) {
			fake_end(&qps[id]);
			puts("ok");
		} else if (sscanf(line, "on %31s", why) == 1) {
			ifindex = if_nametoindex(why);
			puts(ifindex ? "ok" : "none");
		} else if (!strncmp(line, "fork", 4)) {
			cmd_fork();
		} else if (!strncmp(line, "warnings", 8)) {
			printf("%u\n", fake_warnings());
		} else if (!strncmp(line, "quit", 4)) {
			quit();
		} else if (!cmd_qp(line) && !cmd_key(line)) {
			puts("what?");
		}
	}
	return 0;
}
