/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Control messages: each survives the way to bytes and back; nothing else is taken for one.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire.h"

static uint64_t seed = 88172645463325252u;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void rnd_bytes(void *to, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)to)[i] = (uint8_t)rnd();
}

static const enum wire_type types[] = {
	WIRE_HELLO, WIRE_HELLO_ACK, WIRE_COMMIT, WIRE_WELCOME, WIRE_REFUSE, WIRE_PING, WIRE_PONG,
	WIRE_QP_FIND, WIRE_QP_FOUND, WIRE_QP_MISSING, WIRE_QP_ADD, WIRE_QP_CONFIRM,
	WIRE_QP_REFUSE, WIRE_QP_READY, WIRE_QP_DELETE, WIRE_QP_ERROR, WIRE_KEY_GET, WIRE_KEY_PUT,
	WIRE_KEY_DELETE, WIRE_KEY_DELETED,
};
#define NTYPES (sizeof(types) / sizeof(*types))

static void desc_fill(struct wire_qp_desc *desc)
{
	desc->nmembers = (uint8_t)(1 + rnd() % WIRE_MAX_MEMBERS);
	desc->npaths = (uint8_t)(rnd() % (WIRE_MAX_PATHS + 1));
	desc->has_srq = rnd() & 1;
	desc->max_dest_rd_atomic = (uint8_t)rnd();
	desc->access_flags = (uint32_t)rnd();
	desc->max_recv_wr = (uint32_t)rnd();
	desc->pd_id = rnd();
	desc->ring_addr = rnd();
	desc->ring_rkey = (uint32_t)rnd();
	desc->ring_entries = (uint32_t)rnd();
	for (int i = 0; i < desc->nmembers; i++) {
		rnd_bytes(desc->members[i].gid, 16);
		desc->members[i].mtu = (uint32_t)rnd();
		desc->members[i].speed_mbps = (uint32_t)rnd();
	}
	for (int i = 0; i < desc->npaths; i++) {
		desc->paths[i].member = (uint8_t)(rnd() % desc->nmembers);
		desc->paths[i].peer_member = (uint8_t)(rnd() % WIRE_MAX_MEMBERS);
		desc->paths[i].qpn = (uint32_t)rnd();
		desc->paths[i].psn = (uint32_t)rnd();
	}
}

static void qp_fill(struct wire_msg *msg)
{
	rnd_bytes(&msg->qp.from, sizeof(msg->qp.from));
	rnd_bytes(&msg->qp.to, sizeof(msg->qp.to));
	msg->qp.pair_id = (uint32_t)rnd();
	switch ((int)msg->type) {
	case WIRE_QP_FIND:
	case WIRE_QP_FOUND:
	case WIRE_QP_ADD:
	case WIRE_QP_CONFIRM:
		desc_fill(&msg->qp.desc);
		break;
	case WIRE_QP_MISSING:
	case WIRE_QP_REFUSE:
	case WIRE_QP_ERROR:
		msg->qp.reason = (uint32_t)rnd();
		break;
	case WIRE_QP_READY:
		msg->qp.path_mask = (uint32_t)rnd();
		break;
	case WIRE_KEY_GET:
		msg->qp.rkey = (uint32_t)rnd();
		break;
	case WIRE_KEY_PUT:
		msg->qp.rkey = (uint32_t)rnd();
		msg->qp.nkeys = (uint8_t)(rnd() % (WIRE_MAX_MEMBERS + 1));
		rnd_bytes(msg->qp.keys, msg->qp.nkeys * sizeof(*msg->qp.keys));
		break;
	}
}

static void msg_fill(struct wire_msg *msg, enum wire_type type)
{
	memset(msg, 0, sizeof(*msg));
	msg->type = type;
	msg->version = WIRE_VERSION;
	switch ((int)type) {
	case WIRE_HELLO:
		msg->hello.nonce = rnd();
		msg->hello.conn_id = rnd();
		msg->hello.secret = rnd() & 1;
		rnd_bytes(msg->hello.target_gid, 16);
		msg->hello.target_qpn = (uint32_t)rnd();
		rnd_bytes(msg->hello.challenge, WIRE_CHALLENGE_SIZE);
		break;
	case WIRE_HELLO_ACK:
		msg->hello_ack.nonce = rnd();
		msg->hello_ack.secret = rnd() & 1;
		rnd_bytes(msg->hello_ack.challenge, WIRE_CHALLENGE_SIZE);
		rnd_bytes(msg->hello_ack.proof, WIRE_PROOF_SIZE);
		break;
	case WIRE_COMMIT:
		msg->commit.lost_id = rnd();
		rnd_bytes(msg->commit.proof, WIRE_PROOF_SIZE);
		break;
	case WIRE_WELCOME:
		break;
	case WIRE_REFUSE:
		msg->refusal = (uint32_t)rnd();
		break;
	case WIRE_PING:
	case WIRE_PONG:
		msg->stamp = rnd();
		break;
	case WIRE_KEY_DELETE:
	case WIRE_KEY_DELETED:
		msg->key.pd_id = rnd();
		msg->key.rkey = (uint32_t)rnd();
		break;
	default:
		qp_fill(msg);
	}
}

static void every_message_comes_back(void **state)
{
	struct wire_msg in, out;
	uint8_t buf[WIRE_MSG_MAX];
	size_t len, said;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		for (size_t t = 0; t < NTYPES; t++) {
			msg_fill(&in, types[t]);
			len = wire_encode(&in, buf);
			assert_true(len >= WIRE_HEADER_SIZE && len <= WIRE_MSG_MAX);
			assert_int_equal(wire_measure(buf, WIRE_HEADER_SIZE, &said), 0);
			assert_int_equal(said, len);
			assert_int_equal(wire_decode(buf, len, &out), 0);
			assert_memory_equal(&in, &out, sizeof(in));
			assert_non_null(wire_type_name(types[t]));
		}
	}
}

/* The layout is a promise to other versions of this program: these bytes must not change. */
static void layout_stands(void **state)
{
	static const uint8_t ping[] = { 3, 6, 0, 0, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8 };
	static const uint8_t refuse[] = { 3, 5, 0, 0, 0, 0, 0, 12, 0, 0, 0, 4 };
	struct wire_msg msg = { .type = WIRE_PING, .stamp = 0x0102030405060708 };
	uint8_t buf[WIRE_MSG_MAX];

	(void)state;
	assert_int_equal(wire_encode(&msg, buf), sizeof(ping));
	assert_memory_equal(buf, ping, sizeof(ping));
	msg.type = WIRE_REFUSE;
	msg.refusal = WIRE_REFUSE_VERSION;
	assert_int_equal(wire_encode(&msg, buf), sizeof(refuse));
	assert_memory_equal(buf, refuse, sizeof(refuse));
	msg_fill(&msg, WIRE_HELLO);
	assert_int_equal(wire_encode(&msg, buf), 85);
	msg_fill(&msg, WIRE_HELLO_ACK);
	assert_int_equal(wire_encode(&msg, buf), 89);
	msg_fill(&msg, WIRE_COMMIT);
	assert_int_equal(wire_encode(&msg, buf), 48);
	msg_fill(&msg, WIRE_QP_DELETE);
	assert_int_equal(wire_encode(&msg, buf), 60);
	msg_fill(&msg, WIRE_QP_ADD);
	assert_int_equal(wire_encode(&msg, buf),
			 96 + 24 * msg.qp.desc.nmembers + 10 * msg.qp.desc.npaths);
}

static void too_short_and_too_long(void **state)
{
	struct wire_msg in, out;
	uint8_t buf[WIRE_MSG_MAX + 8], copy[WIRE_MSG_MAX + 8];
	uint8_t *exact;
	size_t len;

	(void)state;
	for (size_t t = 0; t < NTYPES; t++) {
		msg_fill(&in, types[t]);
		len = wire_encode(&in, buf);
		for (size_t cut = WIRE_HEADER_SIZE; cut < len; cut++) {
			/* On the heap and exact: a sanitizer sees a byte read beyond. */
			exact = malloc(cut);
			memcpy(exact, buf, cut);
			assert_int_equal(wire_decode(exact, cut, &out), EPROTO);
			exact[6] = (uint8_t)(cut >> 8);
			exact[7] = (uint8_t)cut;
			assert_int_equal(wire_decode(exact, cut, &out), EPROTO);
			free(exact);
		}
		memcpy(copy, buf, len);
		copy[len] = 0;
		copy[6] = (uint8_t)((len + 1) >> 8);
		copy[7] = (uint8_t)(len + 1);
		if (len < WIRE_MSG_MAX)
			assert_int_equal(wire_decode(copy, len + 1, &out), EPROTO);
	}
}

static void bad_headers(void **state)
{
	uint8_t buf[16] = { WIRE_VERSION, WIRE_PING, 0, 0, 0, 0, 0, 16 };
	struct wire_msg out;
	size_t len;

	(void)state;
	assert_int_equal(wire_measure(buf, 7, &len), EAGAIN);
	buf[2] = 1;
	assert_int_equal(wire_measure(buf, 8, &len), EPROTO);
	buf[2] = 0;
	buf[4] = 1;
	assert_int_equal(wire_measure(buf, 8, &len), EPROTO);
	buf[4] = 0;
	buf[7] = 7;
	assert_int_equal(wire_measure(buf, 8, &len), EPROTO);
	buf[7] = 16;
	buf[1] = 99;
	assert_int_equal(wire_decode(buf, 16, &out), EPROTO);
	buf[1] = WIRE_PING;
	buf[0] = WIRE_VERSION + 1;
	assert_int_equal(wire_decode(buf, 16, &out), EPROTONOSUPPORT);
	assert_int_equal(out.version, WIRE_VERSION + 1);
	buf[1] = WIRE_REFUSE;
	buf[7] = 12;
	assert_int_equal(wire_decode(buf, 12, &out), 0);
	assert_int_equal(out.type, WIRE_REFUSE);
}

static void counts_beyond_their_arrays(void **state)
{
	struct wire_msg msg, out;
	uint8_t buf[WIRE_MSG_MAX];
	size_t len;

	(void)state;
	msg_fill(&msg, WIRE_QP_ADD);
	msg.qp.desc.nmembers = WIRE_MAX_MEMBERS + 1;
	assert_int_equal(wire_encode(&msg, buf), 0);
	msg.qp.desc.nmembers = 2;
	msg.qp.desc.npaths = 1;
	msg.qp.desc.paths[0].member = 2;
	assert_int_equal(wire_encode(&msg, buf), 0);
	msg.qp.desc.paths[0].member = 1;
	len = wire_encode(&msg, buf);
	/* nmembers, npaths and has_srq come first in the description. */
	for (int field = 0; field < 3; field++) {
		uint8_t was = buf[60 + field];

		buf[60 + field] = 255;
		assert_int_equal(wire_decode(buf, len, &out), EPROTO);
		buf[60 + field] = was;
	}
	msg_fill(&msg, WIRE_KEY_PUT);
	msg.qp.nkeys = WIRE_MAX_MEMBERS + 1;
	assert_int_equal(wire_encode(&msg, buf), 0);
	msg.type = 77;
	assert_int_equal(wire_encode(&msg, buf), 0);
}

/* Noise, and messages with a few bytes changed: refused, or taken for one that encodes the same. */
static void garbage(void **state)
{
	struct wire_msg msg, out;
	uint8_t buf[WIRE_MSG_MAX], again[WIRE_MSG_MAX];
	unsigned int taken = 0;

	(void)state;
	for (int round = 0; round < 200000; round++) {
		size_t len;
		uint8_t *exact;

		if (round & 1) {
			msg_fill(&msg, types[rnd() % NTYPES]);
			len = wire_encode(&msg, buf);
			for (int i = (int)(rnd() % 4); i >= 0; i--)
				buf[rnd() % len] = (uint8_t)rnd();
		} else {
			len = WIRE_HEADER_SIZE + rnd() % 200;
			rnd_bytes(buf, len);
			buf[0] = WIRE_VERSION;
			buf[1] = (uint8_t)(rnd() % 40);
			memset(buf + 2, 0, 4);
			buf[6] = (uint8_t)(len >> 8);
			buf[7] = (uint8_t)len;
		}
		exact = malloc(len);
		memcpy(exact, buf, len);
		if (!wire_decode(exact, len, &out) && out.version == WIRE_VERSION) {
			taken++;
			assert_int_equal(wire_encode(&out, again), len);
			assert_memory_equal(again, buf, len);
		}
		free(exact);
	}
	assert_true(taken > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_comes_back),
		cmocka_unit_test(layout_stands),
		cmocka_unit_test(too_short_and_too_long),
		cmocka_unit_test(bad_headers),
		cmocka_unit_test(counts_beyond_their_arrays),
		cmocka_unit_test(garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
