/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The shared secret of auth_key_file: reading it, and proofs of knowing it (HMAC-SHA256).
 *
 * The only user of the cryptography library. Which bytes a proof covers, and when one is asked
 * for, is decided in ctrl_greet.c.
 */
#ifndef BOND_AUTH_H
#define BOND_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTH_KEY_MIN		16	/* bytes of secret */
#define AUTH_KEY_MAX		256
#define AUTH_PROOF_SIZE		32

struct auth_key {
	size_t len;
	uint8_t secret[AUTH_KEY_MAX];
};

/*
 * Reads the secret: the whole file without newlines at its end. The file must be a regular one, of
 * this user or root, with no rights for others and no write right for the group. On failure a
 * positive errno, and one line of reason, with the file's name, in why.
 */
int auth_key_load(const char *path, struct auth_key *key, char *why, size_t why_size);
void auth_key_wipe(struct auth_key *key);

/* role keeps one side's proof from being played back as the other's. */
enum auth_role { AUTH_INITIATOR = 1, AUTH_ACCEPTOR = 2 };

void auth_prove(const struct auth_key *key, enum auth_role role, const uint8_t *text, size_t len,
		uint8_t proof[AUTH_PROOF_SIZE]);
/* In constant time. */
bool auth_proof_equal(const uint8_t a[AUTH_PROOF_SIZE], const uint8_t b[AUTH_PROOF_SIZE]);

/* len random bytes from the kernel, never fewer. 0, or a positive errno. */
int auth_random(void *buf, size_t len);

#endif
