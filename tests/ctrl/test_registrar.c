/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A registrar that does not answer, and one that cannot accept.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "registrar_priv.h"
#include "two.h"

/* In place of libc's: listeners of this domain fail, with that errno. */
static atomic_int failing_domain, failing_errno;
static atomic_uint failed;

int accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
	socklen_t size = sizeof(int);
	int domain = 0;

	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
	if (domain && domain == atomic_load(&failing_domain)) {
		atomic_fetch_add(&failed, 1);
		errno = atomic_load(&failing_errno);
		return -1;
	}
	return (int)syscall(SYS_accept4, fd, sa, len, flags);
}

/* It waits a little, each time, and goes on when there is room again. */
static void accept_lacks(int domain, int err)
{
	fake_up(x, &a);
	sleep_ms(50);
	atomic_store(&failed, 0);
	atomic_store(&failing_errno, err);
	atomic_store(&failing_domain, domain);
	fake_up(y, &b);
	sleep_ms(500);
	assert_in_range(atomic_load(&failed), 1, 6);
	atomic_store(&failing_domain, 0);
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
}

static void no_memory_for_a_client(void **state)
{
	(void)state;
	accept_lacks(AF_UNIX, ENOMEM);
}

static void no_buffers_for_a_client(void **state)
{
	(void)state;
	accept_lacks(AF_UNIX, ENOBUFS);
}

static void no_descriptor_for_a_client(void **state)
{
	(void)state;
	accept_lacks(AF_UNIX, EMFILE);
}

static void no_memory_for_a_connection(void **state)
{
	(void)state;
	accept_lacks(AF_INET6, ENOMEM);
}

static int waits(int fd, int ms)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };

	return poll(&poller, 1, ms);
}

/* As when its process is stopped: said once, tried again, and all is well when it goes on. */
static void registrar_is_silent(void **state)
{
	struct local_msg msg = { .op = LOCAL_WELCOME };
	struct sockaddr_un sun;
	socklen_t len = registrar_local_name(port, &sun);
	int listener, fd;

	(void)state;
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&sun, len), 0);
	assert_int_equal(listen(listener, 16), 0);
	fake_up(x, &a);
	sleep_ms(1000);
	assert_int_equal(fake_warnings(), 0);
	sleep_ms(1000);
	assert_int_equal(fake_warnings(), 1);
	/* 1500 ms and a second later: another one, and no word of it. */
	sleep_ms(2500);
	assert_int_equal(fake_warnings(), 0);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_int_equal(recv(fd, &msg, sizeof(msg), 0), 0);
	close(fd);
	assert_int_equal(waits(listener, 2000), 1);
	for (;;) {
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		assert_true(fd >= 0);
		if (send(fd, &msg, sizeof(msg), MSG_NOSIGNAL) == sizeof(msg))
			break;
		close(fd);
		assert_int_equal(waits(listener, 2000), 1);
	}
	assert_int_equal(waits(fd, SOON), 1);
	assert_int_equal(recv(fd, &msg, sizeof(msg), 0), sizeof(msg));
	assert_int_equal(msg.op, LOCAL_ADD);
	assert_int_equal(msg.qpn, 10);
	close(fd);
	close(listener);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		two_test(no_memory_for_a_client),
		two_test(no_buffers_for_a_client),
		two_test(no_descriptor_for_a_client),
		two_test(no_memory_for_a_connection),
		two_test(registrar_is_silent),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
