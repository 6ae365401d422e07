/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A program that is none of ours has the control port: silent, talking nonsense, closing. QPs stay
 * on path 0, others of the process are not disturbed, no descriptor is left.
 */
#define _GNU_SOURCE 1
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "two.h"

/* A server on the port that is none of ours. */
enum server_kind { SERVER_SILENT, SERVER_NOISE, SERVER_HTTP, SERVER_HALF, SERVER_CLOSES };

static struct {
	enum server_kind kind;
	int fd;
	pthread_t thread;
	atomic_bool stop;
	atomic_uint accepted;
} server;

static void server_answer(int fd)
{
	uint8_t noise[3000];
	static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";

	switch (server.kind) {
	case SERVER_SILENT:
	case SERVER_CLOSES:
		break;
	case SERVER_NOISE:
		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)rand();
		send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
		break;
	case SERVER_HTTP:
		send(fd, http, sizeof(http), MSG_NOSIGNAL);
		break;
	case SERVER_HALF:
		send(fd, "\2\2\0\0\0\0\0\x59half", 12, MSG_NOSIGNAL);
		break;
	}
}

static void *server_main(void *arg)
{
	int fds[256], n = 0;

	while (!atomic_load(&server.stop) && n < 256) {
		struct pollfd poller = { .fd = server.fd, .events = POLLIN };

		if (poll(&poller, 1, 20) != 1)
			continue;
		fds[n] = accept4(server.fd, NULL, NULL, SOCK_CLOEXEC);
		atomic_fetch_add(&server.accepted, 1);
		server_answer(fds[n]);
		if (server.kind == SERVER_CLOSES)
			close(fds[n]);
		else
			n++;
	}
	while (n)
		close(fds[--n]);
	return arg;
}

static void server_start(enum server_kind kind)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1;

	server.kind = kind;
	atomic_store(&server.stop, false);
	atomic_store(&server.accepted, 0);
	server.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(server.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(server.fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(server.fd, 16), 0);
	assert_int_equal(pthread_create(&server.thread, NULL, server_main, NULL), 0);
}

static void server_stop(void)
{
	atomic_store(&server.stop, true);
	pthread_join(server.thread, NULL);
	close(server.fd);
}

/*
 * Its QPs stay on path 0; others of the process are not disturbed; when the port is ours at last
 * the pair is made.
 */
static void foreign_server(enum server_kind kind, unsigned int least, unsigned int most)
{
	struct fake_qp c, d;
	uint64_t began = now_ms();

	server_start(kind);
	x = fake_ctrl(port, NULL);
	fake_init(&c, A, 12, A, 13, 1);
	fake_init(&d, A, 13, A, 12, 1);
	fake_up(x, &a);
	fake_up(x, &c);
	fake_up(x, &d);
	assert_true(now_ms() - began < 500);
	assert_true(fake_wait(&c, FAKE_READY, 1, SOON));
	assert_false(fake_wait(&a, FAKE_READY, 1, 1500));
	assert_int_equal(fake_count(&a, FAKE_DESCRIBE), 0);
	assert_in_range(atomic_load(&server.accepted), least, most);
	/* That the port is not ours, and that the other side talks nonsense: each once. */
	assert_in_range(fake_warnings(), 1, 3);
	server_stop();
	y = fake_ctrl(port, NULL);
	fake_up(y, &b);
	assert_true(fake_wait(&b, FAKE_READY, 1, SOON));
	assert_true(fake_wait(&a, FAKE_READY, 1, SOON));
	fake_end(&c);
	fake_end(&d);
}

static void silent_server(void **state)
{
	(void)state;
	foreign_server(SERVER_SILENT, 1, 4);
}

static void noisy_server(void **state)
{
	(void)state;
	foreign_server(SERVER_NOISE, 1, 4);
}

static void http_server(void **state)
{
	(void)state;
	foreign_server(SERVER_HTTP, 1, 4);
}

static void server_with_half_a_message(void **state)
{
	(void)state;
	foreign_server(SERVER_HALF, 1, 4);
}

static void server_that_closes(void **state)
{
	(void)state;
	/* Again after 10 ms, doubling to a second, in the second and a half that it is watched. */
	foreign_server(SERVER_CLOSES, 5, 9);
}

/* Nobody on the port: refused at first, found soon after it is there. */
static void refused_then_there(void **state)
{
	struct fake_qp c;

	(void)state;
	x = fake_ctrl(port, NULL);
	/* x is the registrar itself, so that it answers "unknown"; see procs for two hosts. */
	fake_up(x, &a);
	sleep_ms(500);
	y = fake_ctrl(port, NULL);
	fake_init(&c, B, 21, A, 99, 1);
	fake_up(y, &c);
	fake_up(y, &b);
	assert_true(fake_wait(&a, FAKE_READY, 1, 1500));
	fake_end(&c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		port_test(silent_server),
		port_test(noisy_server),
		port_test(http_server),
		port_test(server_with_half_a_message),
		port_test(server_that_closes),
		port_test(refused_then_there),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
