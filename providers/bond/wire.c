/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Control messages to bytes and back. See wire.h for the contents; everything is big endian, at
 * fixed places, and a message must be used up exactly.
 */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "wire.h"

/* Where we are in a message. bad: something did not fit; nothing is read or written any more. */
struct cursor {
	uint8_t *at;
	size_t left;
	bool reading;
	bool bad;
};

static const struct {
	enum wire_type type;
	const char *name;
} type_names[] = {
	{ WIRE_HELLO, "HELLO" },
	{ WIRE_HELLO_ACK, "HELLO_ACK" },
	{ WIRE_COMMIT, "COMMIT" },
	{ WIRE_WELCOME, "WELCOME" },
	{ WIRE_REFUSE, "REFUSE" },
	{ WIRE_PING, "PING" },
	{ WIRE_PONG, "PONG" },
	{ WIRE_QP_FIND, "QP_FIND" },
	{ WIRE_QP_FOUND, "QP_FOUND" },
	{ WIRE_QP_MISSING, "QP_MISSING" },
	{ WIRE_QP_ADD, "QP_ADD" },
	{ WIRE_QP_CONFIRM, "QP_CONFIRM" },
	{ WIRE_QP_REFUSE, "QP_REFUSE" },
	{ WIRE_QP_READY, "QP_READY" },
	{ WIRE_QP_DELETE, "QP_DELETE" },
	{ WIRE_QP_ERROR, "QP_ERROR" },
	{ WIRE_KEY_GET, "KEY_GET" },
	{ WIRE_KEY_PUT, "KEY_PUT" },
	{ WIRE_KEY_DELETE, "KEY_DELETE" },
	{ WIRE_KEY_DELETED, "KEY_DELETED" },
};

const char *wire_type_name(enum wire_type type)
{
	for (size_t i = 0; i < sizeof(type_names) / sizeof(*type_names); i++)
		if (type_names[i].type == type)
			return type_names[i].name;
	return NULL;
}

/*
 * One function per field kind for both directions, so that encoder and decoder cannot disagree
 * about the layout.
 */
static void bytes(struct cursor *c, void *field, size_t len)
{
	if (c->bad || c->left < len) {
		c->bad = true;
		return;
	}
	if (c->reading)
		memcpy(field, c->at, len);
	else
		memcpy(c->at, field, len);
	c->at += len;
	c->left -= len;
}

static void u8(struct cursor *c, uint8_t *field)
{
	bytes(c, field, sizeof(*field));
}

static void u32(struct cursor *c, uint32_t *field)
{
	uint32_t big = htobe32(*field);

	bytes(c, &big, sizeof(big));
	if (c->reading && !c->bad)
		*field = be32toh(big);
}

static void u64(struct cursor *c, uint64_t *field)
{
	uint64_t big = htobe64(*field);

	bytes(c, &big, sizeof(big));
	if (c->reading && !c->bad)
		*field = be64toh(big);
}

/* A value beyond its range is as bad as a missing byte. */
static void u8_below(struct cursor *c, uint8_t *field, unsigned int limit)
{
	u8(c, field);
	if (*field >= limit)
		c->bad = true;
}

static void qp_name(struct cursor *c, struct wire_qp *qp)
{
	bytes(c, qp->gid, sizeof(qp->gid));
	u32(c, &qp->qpn);
	u32(c, &qp->generation);
}

static void qp_desc(struct cursor *c, struct wire_qp_desc *desc)
{
	u8_below(c, &desc->nmembers, WIRE_MAX_MEMBERS + 1);
	u8_below(c, &desc->npaths, WIRE_MAX_PATHS + 1);
	u8_below(c, &desc->has_srq, 2);
	u8(c, &desc->max_dest_rd_atomic);
	u32(c, &desc->access_flags);
	u32(c, &desc->max_recv_wr);
	u64(c, &desc->pd_id);
	u64(c, &desc->ring_addr);
	u32(c, &desc->ring_rkey);
	u32(c, &desc->ring_entries);
	for (int i = 0; i < desc->nmembers && !c->bad; i++) {
		bytes(c, desc->members[i].gid, sizeof(desc->members[i].gid));
		u32(c, &desc->members[i].mtu);
		u32(c, &desc->members[i].speed_mbps);
	}
	for (int i = 0; i < desc->npaths && !c->bad; i++) {
		u8_below(c, &desc->paths[i].member, desc->nmembers);
		u8_below(c, &desc->paths[i].peer_member, WIRE_MAX_MEMBERS);
		u32(c, &desc->paths[i].qpn);
		u32(c, &desc->paths[i].psn);
	}
}

static void key_list(struct cursor *c, struct wire_qp_msg *qp)
{
	u32(c, &qp->rkey);
	u8_below(c, &qp->nkeys, WIRE_MAX_MEMBERS + 1);
	for (int i = 0; i < qp->nkeys && !c->bad; i++)
		u32(c, &qp->keys[i]);
	u32(c, &qp->key_access);
	u64(c, &qp->key_addr);
	u64(c, &qp->key_length);
}

static void qp_head(struct cursor *c, struct wire_qp_msg *qp)
{
	qp_name(c, &qp->from);
	qp_name(c, &qp->to);
	u32(c, &qp->pair_id);
}

static void hello(struct cursor *c, struct wire_hello *m)
{
	uint64_t magic = WIRE_MAGIC;

	u64(c, &magic);
	if (magic != WIRE_MAGIC)
		c->bad = true;
	u64(c, &m->nonce);
	u64(c, &m->conn_id);
	u8_below(c, &m->secret, 2);
	bytes(c, m->target_gid, sizeof(m->target_gid));
	u32(c, &m->target_qpn);
	bytes(c, m->challenge, sizeof(m->challenge));
}

static void hello_ack(struct cursor *c, struct wire_hello_ack *m)
{
	uint64_t magic = WIRE_MAGIC;

	u64(c, &magic);
	if (magic != WIRE_MAGIC)
		c->bad = true;
	u64(c, &m->nonce);
	u8_below(c, &m->secret, 2);
	bytes(c, m->challenge, sizeof(m->challenge));
	bytes(c, m->proof, sizeof(m->proof));
}

static void commit(struct cursor *c, struct wire_commit *m)
{
	u64(c, &m->lost_id);
	bytes(c, m->proof, sizeof(m->proof));
}

static void qp_body(struct cursor *c, struct wire_msg *msg)
{
	struct wire_qp_msg *qp = &msg->qp;

	qp_head(c, qp);
	switch ((int)msg->type) {
	case WIRE_QP_FIND:
	case WIRE_QP_FOUND:
	case WIRE_QP_ADD:
	case WIRE_QP_CONFIRM:
		qp_desc(c, &qp->desc);
		break;
	case WIRE_QP_MISSING:
	case WIRE_QP_REFUSE:
	case WIRE_QP_ERROR:
		u32(c, &qp->reason);
		break;
	case WIRE_QP_READY:
		u32(c, &qp->path_mask);
		break;
	case WIRE_KEY_GET:
		u32(c, &qp->rkey);
		break;
	case WIRE_KEY_PUT:
		key_list(c, qp);
		break;
	}
}

static void body(struct cursor *c, struct wire_msg *msg)
{
	switch (msg->type) {
	case WIRE_HELLO:
		hello(c, &msg->hello);
		return;
	case WIRE_HELLO_ACK:
		hello_ack(c, &msg->hello_ack);
		return;
	case WIRE_COMMIT:
		commit(c, &msg->commit);
		return;
	case WIRE_WELCOME:
		return;
	case WIRE_REFUSE:
		u32(c, &msg->refusal);
		return;
	case WIRE_PING:
	case WIRE_PONG:
		u64(c, &msg->stamp);
		return;
	case WIRE_QP_FIND:
	case WIRE_QP_FOUND:
	case WIRE_QP_MISSING:
	case WIRE_QP_ADD:
	case WIRE_QP_CONFIRM:
	case WIRE_QP_REFUSE:
	case WIRE_QP_READY:
	case WIRE_QP_DELETE:
	case WIRE_QP_ERROR:
	case WIRE_KEY_GET:
	case WIRE_KEY_PUT:
		qp_body(c, msg);
		return;
	case WIRE_KEY_DELETE:
	case WIRE_KEY_DELETED:
		u64(c, &msg->key.pd_id);
		u32(c, &msg->key.rkey);
		return;
	}
	c->bad = true;
}

size_t wire_encode(const struct wire_msg *msg, uint8_t *buf)
{
	struct cursor c = { .at = buf + WIRE_HEADER_SIZE, .left = WIRE_MSG_MAX - WIRE_HEADER_SIZE };
	uint32_t big_len;
	size_t len;

	/* The fields are only read while c.reading is false. */
	body(&c, (struct wire_msg *)msg);
	if (c.bad)
		return 0;
	len = WIRE_MSG_MAX - c.left;
	big_len = htobe32((uint32_t)len);
	buf[0] = WIRE_VERSION;
	buf[1] = (uint8_t)msg->type;
	buf[2] = 0;
	buf[3] = 0;
	memcpy(buf + 4, &big_len, sizeof(big_len));
	return len;
}

int wire_measure(const uint8_t *buf, size_t have, size_t *len)
{
	uint32_t big_len;

	if (have < WIRE_HEADER_SIZE)
		return EAGAIN;
	memcpy(&big_len, buf + 4, sizeof(big_len));
	*len = be32toh(big_len);
	if (buf[2] || buf[3] || *len < WIRE_HEADER_SIZE || *len > WIRE_MSG_MAX)
		return EPROTO;
	return 0;
}

int wire_decode(const uint8_t *buf, size_t len, struct wire_msg *msg)
{
	struct cursor c = { .reading = true };
	size_t said;

	memset(msg, 0, sizeof(*msg));
	if (wire_measure(buf, len, &said) || said != len)
		return EPROTO;
	msg->version = buf[0];
	msg->type = buf[1];
	if (msg->version != WIRE_VERSION && msg->type != WIRE_REFUSE)
		return EPROTONOSUPPORT;
	/* Only read from while c.reading is true. */
	c.at = (uint8_t *)buf + WIRE_HEADER_SIZE;
	c.left = len - WIRE_HEADER_SIZE;
	body(&c, msg);
	return c.bad || c.left ? EPROTO : 0;
}
