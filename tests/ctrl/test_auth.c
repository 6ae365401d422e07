/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The file with the shared secret, and the proofs made with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "auth.h"

static char path[] = "/tmp/bond-auth-XXXXXX";
static char why[256];

static void write_key(const void *bytes, size_t len, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static int load(struct auth_key *key)
{
	why[0] = 0;
	return auth_key_load(path, key, why, sizeof(why));
}

static void good_file(void **state)
{
	struct auth_key key;

	(void)state;
	write_key("sixteen letters!\r\n\n", 19, 0600);
	assert_int_equal(load(&key), 0);
	assert_int_equal(key.len, 16);
	assert_memory_equal(key.secret, "sixteen letters!", 16);
	write_key("sixteen letters!", 16, 0440);
	assert_int_equal(load(&key), 0);
	auth_key_wipe(&key);
	assert_int_equal(key.len, 0);
}

static void others_can_read_it(void **state)
{
	static const mode_t bad[] = { 0604, 0602, 0601, 0620, 0644, 0666 };
	struct auth_key key;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		write_key("sixteen letters!", 16, bad[i]);
		assert_int_equal(load(&key), EPERM);
		assert_non_null(strstr(why, path));
		assert_non_null(strstr(why, "must be 0600"));
		assert_null(strchr(why, '\n'));
	}
}

static void no_secret_in_it(void **state)
{
	uint8_t many[AUTH_KEY_MAX + 100];
	struct auth_key key;

	(void)state;
	memset(many, 'x', sizeof(many));
	write_key("short\n", 6, 0600);
	assert_int_equal(load(&key), EINVAL);
	assert_int_equal(key.len, 0);
	write_key("", 0, 0600);
	assert_int_equal(load(&key), EINVAL);
	write_key(many, sizeof(many), 0600);
	assert_int_equal(load(&key), EINVAL);
	write_key(many, AUTH_KEY_MAX, 0600);
	assert_int_equal(load(&key), 0);
	assert_int_equal(auth_key_load("/nowhere/at/all", &key, why, sizeof(why)), ENOENT);
	assert_non_null(strstr(why, "/nowhere/at/all: No such file"));
	assert_int_equal(auth_key_load("/dev/null", &key, why, sizeof(why)), EINVAL);
	assert_non_null(strstr(why, "not a regular file"));
}

static void fifo_is_not_waited_for(void **state)
{
	struct auth_key key;

	(void)state;
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(load(&key), EINVAL);
	unlink(path);
}

static void proofs(void **state)
{
	/* HMAC-SHA256 of byte 1 and "text" under sixteen times 'k', computed by another program. */
	static const uint8_t known[AUTH_PROOF_SIZE] = {
		0xb5, 0x7c, 0x1b, 0xe6, 0xd6, 0x8e, 0x94, 0x79,
		0xd7, 0xdd, 0xee, 0x77, 0xc5, 0xa2, 0x45, 0xa2,
		0x68, 0x73, 0x4f, 0x76, 0x0d, 0xdd, 0xb8, 0x66,
		0xdd, 0x76, 0x7c, 0x3e, 0x50, 0xe0, 0x0c, 0x7f,
	};
	struct auth_key key = { .len = 16 }, other = { .len = 16 };
	uint8_t a[AUTH_PROOF_SIZE], b[AUTH_PROOF_SIZE];

	(void)state;
	memset(key.secret, 'k', 16);
	memset(other.secret, 'o', 16);
	auth_prove(&key, AUTH_INITIATOR, (const uint8_t *)"text", 4, a);
	assert_memory_equal(a, known, sizeof(known));
	auth_prove(&key, AUTH_INITIATOR, (const uint8_t *)"text", 4, b);
	assert_true(auth_proof_equal(a, b));
	b[31] ^= 1;
	assert_false(auth_proof_equal(a, b));
	auth_prove(&key, AUTH_ACCEPTOR, (const uint8_t *)"text", 4, b);
	assert_false(auth_proof_equal(a, b));
	auth_prove(&other, AUTH_INITIATOR, (const uint8_t *)"text", 4, b);
	assert_false(auth_proof_equal(a, b));
	auth_prove(&key, AUTH_INITIATOR, (const uint8_t *)"texu", 4, b);
	assert_false(auth_proof_equal(a, b));
}

static void random_differs(void **state)
{
	uint64_t a = 0, b = 0;

	(void)state;
	assert_int_equal(auth_random(&a, sizeof(a)), 0);
	assert_int_equal(auth_random(&b, sizeof(b)), 0);
	assert_true(a && b && a != b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_file),
		cmocka_unit_test(others_can_read_it),
		cmocka_unit_test(no_secret_in_it),
		cmocka_unit_test(fifo_is_not_waited_for),
		cmocka_unit_test(proofs),
		cmocka_unit_test(random_differs),
	};
	int failed, fd = mkstemp(path);

	if (fd < 0)
		return 1;
	close(fd);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
