/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The shared secret and the proofs made with it. See auth.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth.h"

static int file_refuse(const char *path, const struct stat *st, char *why, size_t why_size)
{
	if (!S_ISREG(st->st_mode)) {
		snprintf(why, why_size, "%s: not a regular file", path);
		return EINVAL;
	}
	if (st->st_uid != 0 && st->st_uid != geteuid()) {
		snprintf(why, why_size, "%s: owned by uid %u; must be root's or this user's", path,
			 (unsigned int)st->st_uid);
		return EPERM;
	}
	if (st->st_mode & (S_IRWXO | S_IWGRP)) {
		snprintf(why, why_size, "%s: mode %04o lets others in; must be 0600 or 0640", path,
			 (unsigned int)st->st_mode & 07777);
		return EPERM;
	}
	return 0;
}

static int secret_read(int fd, struct auth_key *key, const char *path, char *why, size_t why_size)
{
	uint8_t buf[AUTH_KEY_MAX + 3];
	ssize_t got, len = 0;
	int err = 0;

	while ((size_t)len < sizeof(buf)) {
		got = read(fd, buf + len, sizeof(buf) - (size_t)len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			err = errno;
			snprintf(why, why_size, "%s: %s", path, strerror(err));
			goto out_wipe;
		}
		if (!got)
			break;
		len += got;
	}
	while (len && (buf[len - 1] == '\n' || buf[len - 1] == '\r'))
		len--;
	if (len < AUTH_KEY_MIN || len > AUTH_KEY_MAX) {
		snprintf(why, why_size, "%s: the secret must have %d to %d bytes", path,
			 AUTH_KEY_MIN, AUTH_KEY_MAX);
		err = EINVAL;
		goto out_wipe;
	}
	memcpy(key->secret, buf, (size_t)len);
	key->len = (size_t)len;
out_wipe:
	explicit_bzero(buf, sizeof(buf));
	return err;
}

int auth_key_load(const char *path, struct auth_key *key, char *why, size_t why_size)
{
	struct stat st;
	int fd, err;

	memset(key, 0, sizeof(*key));
	/* O_NONBLOCK: a FIFO must be refused, not waited for. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st)) {
		err = errno;
		snprintf(why, why_size, "%s: %s", path, strerror(err));
		goto out_close;
	}
	err = file_refuse(path, &st, why, why_size);
	if (!err)
		err = secret_read(fd, key, path, why, why_size);
out_close:
	if (fd >= 0)
		close(fd);
	return err;
}

void auth_key_wipe(struct auth_key *key)
{
	explicit_bzero(key, sizeof(*key));
}

void auth_prove(const struct auth_key *key, enum auth_role role, const uint8_t *text, size_t len,
		uint8_t proof[AUTH_PROOF_SIZE])
{
	struct hmac_sha256_ctx ctx;
	const uint8_t first = (uint8_t)role;

	hmac_sha256_set_key(&ctx, key->len, key->secret);
	hmac_sha256_update(&ctx, sizeof(first), &first);
	hmac_sha256_update(&ctx, len, text);
	hmac_sha256_digest(&ctx, AUTH_PROOF_SIZE, proof);
	explicit_bzero(&ctx, sizeof(ctx));
}

bool auth_proof_equal(const uint8_t a[AUTH_PROOF_SIZE], const uint8_t b[AUTH_PROOF_SIZE])
{
	return memeql_sec(a, b, AUTH_PROOF_SIZE);
}

int auth_random(void *buf, size_t len)
{
	uint8_t *at = buf;
	ssize_t got;

	while (len) {
		got = getrandom(at, len, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno;
		at += got;
		len -= (size_t)got;
	}
	return 0;
}
