/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Control messages: their contents as structs, and their fixed layout as bytes.
 *
 * Pure: no sockets, no clocks, no allocation. What the messages mean and in which order they come
 * is in Documentation/control-protocol.md; who sends them: ctrl_greet.c, ctrl_session.c,
 * ctrl_pair.c, ctrl_key.c.
 */
#ifndef BOND_WIRE_H
#define BOND_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION		3
#define WIRE_MAGIC		UINT64_C(0x524442306354524c)
#define WIRE_HEADER_SIZE	8
#define WIRE_MSG_MAX		2048	/* bytes, header included */
#define WIRE_MAX_MEMBERS	16
#define WIRE_MAX_PATHS		32
#define WIRE_CHALLENGE_SIZE	32
#define WIRE_PROOF_SIZE		32

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_HELLO_ACK,
	WIRE_COMMIT,
	WIRE_WELCOME,
	WIRE_REFUSE,
	WIRE_PING,
	WIRE_PONG,
	WIRE_QP_FIND = 16,
	WIRE_QP_FOUND,
	WIRE_QP_MISSING,
	WIRE_QP_ADD,
	WIRE_QP_CONFIRM,
	WIRE_QP_REFUSE,
	WIRE_QP_READY,
	WIRE_QP_DELETE,
	WIRE_QP_ERROR,
	WIRE_KEY_GET = 32,
	WIRE_KEY_PUT,
	WIRE_KEY_DELETE,
	WIRE_KEY_DELETED,
};

/* Why a connection is refused before it is a session. */
enum wire_refusal {
	WIRE_REFUSE_UNKNOWN = 1,	/* nobody here owns the QP asked for */
	WIRE_REFUSE_DUPLICATE,		/* another connection of these two processes stays */
	WIRE_REFUSE_SECRET,		/* wrong or missing secret */
	WIRE_REFUSE_VERSION,		/* header.version says which one is spoken here */
	WIRE_REFUSE_BUSY,
};

/* A QP of one process, as its peer knows it. generation 0: not known yet. */
struct wire_qp {
	uint8_t gid[16];
	uint32_t qpn;
	uint32_t generation;	/* one more per RESET of the QP */
};

struct wire_member {
	uint8_t gid[16];
	uint32_t mtu;		/* bytes: 256 ... 4096 */
	uint32_t speed_mbps;
};

/*
 * One end of a path. Path i of one side is connected to path i of the other; path 0 is the
 * application's own QP. A path whose qpn is 0 was not made.
 */
struct wire_path {
	uint8_t member;		/* index into the sender's own members */
	uint8_t peer_member;	/* index into the receiver's members: what the sender wants */
	uint32_t qpn;
	uint32_t psn;		/* 24 bits: with which the sender's QP begins to send; not path 0's */
};

/* What one side tells about its QP. The control channel itself looks at pd_id only. */
struct wire_qp_desc {
	uint8_t nmembers;
	uint8_t npaths;			/* 0 in QP_FIND and QP_FOUND */
	uint8_t has_srq;
	uint8_t max_dest_rd_atomic;
	uint32_t access_flags;		/* IBV_ACCESS_* */
	uint32_t max_recv_wr;
	uint64_t pd_id;			/* the key domain: which PD of the sender's process */
	/* Where the receiver may write headers, by the primary's key; 0 entries: nowhere. */
	uint64_t ring_addr;
	uint32_t ring_rkey;
	uint32_t ring_entries;		/* a power of two; an entry: struct notify_header */
	struct wire_member members[WIRE_MAX_MEMBERS];
	struct wire_path paths[WIRE_MAX_PATHS];
};

struct wire_hello {
	uint64_t nonce;			/* of the connecting process */
	uint64_t conn_id;		/* random, of this connection */
	uint8_t secret;			/* 1: a secret is configured here */
	uint8_t target_gid[16];
	uint32_t target_qpn;
	uint8_t challenge[WIRE_CHALLENGE_SIZE];
};

struct wire_hello_ack {
	uint64_t nonce;			/* of the accepting process */
	uint8_t secret;
	uint8_t challenge[WIRE_CHALLENGE_SIZE];
	uint8_t proof[WIRE_PROOF_SIZE];
};

struct wire_commit {
	uint64_t lost_id;		/* conn_id of the session that this one replaces, or 0 */
	uint8_t proof[WIRE_PROOF_SIZE];
};

/* Every QP_* and KEY_GET, KEY_PUT message. Which of the other members count depends on type. */
struct wire_qp_msg {
	struct wire_qp from;
	struct wire_qp to;
	uint32_t pair_id;		/* of one pairing, chosen by the leader; 0: none yet */
	uint32_t reason;		/* MISSING, REFUSE: an errno; ERROR: the sender's own */
	uint32_t path_mask;		/* READY: bit i: path i is connected at this end */
	uint32_t rkey;			/* KEY_GET, KEY_PUT: path 0's key */
	uint8_t nkeys;			/* KEY_PUT: 0: no such key */
	uint32_t keys[WIRE_MAX_MEMBERS];	/* KEY_PUT: by member of the sender */
	uint32_t key_access;		/* KEY_PUT: IBV_ACCESS_* of the MR */
	uint64_t key_addr;		/* KEY_PUT: the remote addresses that it covers ... */
	uint64_t key_length;		/* ... in bytes */
	struct wire_qp_desc desc;	/* FIND, FOUND, ADD, CONFIRM */
};

struct wire_key_msg {
	uint64_t pd_id;
	uint32_t rkey;
};

struct wire_msg {
	enum wire_type type;
	uint8_t version;		/* as received; ignored by wire_encode() */
	union {
		struct wire_hello hello;
		struct wire_hello_ack hello_ack;
		struct wire_commit commit;
		uint32_t refusal;		/* enum wire_refusal */
		uint64_t stamp;			/* PING, PONG */
		struct wire_qp_msg qp;
		struct wire_key_msg key;	/* KEY_DELETE, KEY_DELETED */
	};
};

const char *wire_type_name(enum wire_type type);

/*
 * Writes msg into buf, which has room for WIRE_MSG_MAX bytes. Returns its length, or 0 where a
 * count in msg is beyond its array or the type is none.
 */
size_t wire_encode(const struct wire_msg *msg, uint8_t *buf);

/*
 * How long is the message that begins in these have bytes? Sets *len, also before all of it is
 * there. EAGAIN: fewer than WIRE_HEADER_SIZE bytes. EPROTO: no message begins like this.
 */
int wire_measure(const uint8_t *buf, size_t have, size_t *len);

/*
 * Reads exactly one message of len bytes. EPROTO: malformed. EPROTONOSUPPORT: another version (then
 * only type and version are set; REFUSE keeps its layout in every version and is always read).
 */
int wire_decode(const uint8_t *buf, size_t len, struct wire_msg *msg);

#endif
