/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Processes of several users, and on two hosts (network name spaces joined by a cable). Needs root,
 * unshare, nsenter and ip; exits with 77 where it has not got them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_qp.h"
#include "peer_proc.h"

#define A "127.0.0.1"
#define B "127.0.0.2"
#define C "127.0.0.3"

static void secret_owned_by_another_user(void **state)
{
	char path[] = "/tmp/bond-auth-XXXXXX", why[256] = "";
	struct auth_key key;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "sixteen letters!", 16), 16);
	assert_int_equal(auth_key_load(path, &key, why, sizeof(why)), 0);
	assert_int_equal(fchown(fd, 12345, 0), 0);
	assert_int_equal(auth_key_load(path, &key, why, sizeof(why)), EPERM);
	assert_non_null(strstr(why, "12345"));
	close(fd);
	unlink(path);
}

/* Users do not get each other's connections; the port's owner is named, once. */
static void other_users(void **state)
{
	static const char *const uids[3] = { "65534", "65533", "0" };
	struct peer r, p[3];

	(void)state;
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

/* Runs in the network of that process. */
__attribute__((format(printf, 2, 3)))
static void in_net_of(const struct peer *peer, const char *fmt, ...)
{
	char cmd[256];
	va_list args;
	int len = snprintf(cmd, sizeof(cmd), "nsenter -n -t %d ip ", (int)peer->pid);

	va_start(args, fmt);
	vsnprintf(cmd + len, sizeof(cmd) - (size_t)len, fmt, args);
	va_end(args);
	if (system(cmd))
		fail_msg("failed: %s", cmd);
}

/*
 * Two hosts: each process in a network of its own, joined by a cable. The processes cannot be
 * replaced, since they are what keeps their network.
 */
static void hosts_start(struct peer *x, struct peer *y)
{
	peer_start_in_net(x);
	peer_start_in_net(y);
	in_net_of(x, "link add eth0 type veth peer name eth0 netns %d", (int)y->pid);
	in_net_of(x, "addr add 10.9.0.1/24 dev eth0");
	in_net_of(y, "addr add 10.9.0.2/24 dev eth0");
	in_net_of(x, "addr add fe80::1/64 dev eth0 nodad");
	in_net_of(y, "addr add fe80::2/64 dev eth0 nodad");
	in_net_of(x, "link set eth0 up");
	in_net_of(y, "link set eth0 up");
}

#define HOST_X "10.9.0.1"
#define HOST_Y "10.9.0.2"

static void two_hosts(void **state)
{
	struct peer x, y;

	(void)state;
	hosts_start(&x, &y);
	/* Both sides at once, from both sides' ports, again and again, over one session. */
	for (int i = 0; i < 20; i++) {
		expect(&x, "ok", "up %d %s %d %s %d 1", i, HOST_X, 100 + i, HOST_Y, 200 - i);
		expect(&y, "ok", "up %d %s %d %s %d 1", i, HOST_Y, 200 - i, HOST_X, 100 + i);
	}
	for (int i = 0; i < 20; i++) {
		expect(&x, "yes", "wait %d ready 1 3000", i);
		expect(&y, "yes", "wait %d ready 1 3000", i);
	}
	/* The same numbers at two hosts are two QPs. */
	expect(&x, "ok", "up 30 %s 77 %s 77 1", HOST_X, HOST_Y);
	expect(&y, "ok", "up 30 %s 77 %s 77 1", HOST_Y, HOST_X);
	expect(&x, "yes", "wait 30 ready 1 3000");
	expect(&x, "0", "count 30 offer");
	expect(&y, "1", "count 30 offer");
	peer_quit(&x);
	expect(&y, "yes", "wait 0 gone 1 3000");
	expect(&y, "0", "warnings");
	peer_quit(&y);
}

/* Nobody listens there for a while, then somebody does. */
static void refused_then_available(void **state)
{
	struct peer x, y;

	(void)state;
	hosts_start(&x, &y);
	expect(&x, "ok", "up 0 %s 10 %s 20 1", HOST_X, HOST_Y);
	expect(&x, "no", "wait 0 ready 1 2500");
	/* Its registrar starts with its first QP, so that x may be the one who finds. */
	expect(&y, "ok", "up 1 %s 99 %s 98 1", "127.0.0.1", "127.0.0.1");
	expect(&y, "ok", "up 0 %s 20 %s 10 1", HOST_Y, HOST_X);
	expect(&x, "yes", "wait 0 ready 1 1500");
	expect(&y, "yes", "wait 0 ready 1 1500");
	expect(&x, "0", "warnings");
	peer_quit(&x);
	peer_quit(&y);
}

/* Every packet to it vanishes: no answer, no error; nothing else is disturbed. */
static void packets_vanish(void **state)
{
	struct peer x, y;

	(void)state;
	hosts_start(&x, &y);
	in_net_of(&x, "neigh add %s lladdr 02:00:00:00:00:99 dev eth0 nud permanent", HOST_Y);
	expect(&x, "ok", "up 0 %s 10 %s 20 1", HOST_X, HOST_Y);
	expect(&y, "ok", "up 0 %s 20 %s 10 1", HOST_Y, HOST_X);
	expect(&x, "ok", "up 1 %s 11 %s 12 1", HOST_X, HOST_X);
	expect(&x, "ok", "up 2 %s 12 %s 11 1", HOST_X, HOST_X);
	expect(&x, "yes", "wait 1 ready 1 3000");
	expect(&x, "no", "wait 0 ready 1 2000");
	in_net_of(&x, "neigh del %s dev eth0", HOST_Y);
	expect(&x, "yes", "wait 0 ready 1 8000");
	expect(&y, "yes", "wait 0 ready 1 3000");
	expect(&x, "0", "warnings");
	peer_quit(&x);
	peer_quit(&y);
}

/* The cable is out for longer than the heartbeats last: lost at both ends, and back. */
static void cable_out_and_in(void **state)
{
	struct peer x, y;

	(void)state;
	hosts_start(&x, &y);
	expect(&x, "ok", "up 0 %s 10 %s 20 1", HOST_X, HOST_Y);
	expect(&y, "ok", "up 0 %s 20 %s 10 1", HOST_Y, HOST_X);
	expect(&x, "yes", "wait 0 ready 1 3000");
	expect(&y, "yes", "wait 0 ready 1 3000");
	in_net_of(&x, "link set eth0 down");
	expect(&x, "yes", "wait 0 lost 1 5000");
	expect(&y, "yes", "wait 0 lost 1 5000");
	in_net_of(&x, "link set eth0 up");
	expect(&x, "yes", "wait 0 back 1 8000");
	expect(&y, "yes", "wait 0 back 1 8000");
	expect(&x, "0", "count 0 gone");
	expect(&y, "0", "count 0 gone");
	expect(&x, "1", "count 0 ready");
	peer_quit(&x);
	peer_quit(&y);
}

static void link_local_addresses(void **state)
{
	struct peer x, y;

	(void)state;
	hosts_start(&x, &y);
	expect(&x, "ok", "on eth0");
	expect(&y, "ok", "on eth0");
	expect(&x, "ok", "up 0 fe80::1 10 fe80::2 20 1");
	expect(&y, "ok", "up 0 fe80::2 20 fe80::1 10 1");
	expect(&x, "yes", "wait 0 ready 1 5000");
	expect(&y, "yes", "wait 0 ready 1 5000");
	peer_quit(&x);
	peer_quit(&y);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(secret_owned_by_another_user),
		cmocka_unit_test_setup(other_users, peer_setup),
		cmocka_unit_test_setup(root_is_the_registrar, peer_setup),
		cmocka_unit_test_setup(two_hosts, peer_setup),
		cmocka_unit_test_setup(refused_then_available, peer_setup),
		cmocka_unit_test_setup(packets_vanish, peer_setup),
		cmocka_unit_test_setup(cable_out_and_in, peer_setup),
		cmocka_unit_test_setup(link_local_addresses, peer_setup),
	};

	if (geteuid() || system("unshare -n true") || system("ip -V >/dev/null")) {
		puts("skipped: needs root, network name spaces and ip");
		return 77;
	}
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
