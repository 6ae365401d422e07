/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What goes from requester to responder and back. Within one process these structures are handed
 * over by a call, between processes by a seqpacket socket, $FAKE_DIR/proc.<slot>; payload never
 * goes through the socket (but inline data): the responder uses the requester's memory.
 *
 * Not here: how they are answered, see responder.c.
 */
#ifndef FAKE_WIRE_H
#define FAKE_WIRE_H

#include <stdint.h>

#include <infiniband/verbs.h>

#define WIRE_MAX_SGE 32
#define WIRE_MAX_INLINE 1024

/* A piece of the requester's memory. */
struct wire_mem {
	uint64_t addr;
	uint64_t len;
};

struct wire_req {
	uint32_t pid; /* 0: this process */
	uint32_t src_qpn;
	uint32_t dst_qpn;
	uint16_t src_dev;
	uint16_t dst_dev;
	uint8_t qp_type; /* enum ibv_qp_type */
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t solicited;
	uint8_t mtu; /* enum ibv_mtu */
	uint32_t seq; /* index in the SQ, comes back in the answer */
	uint32_t epoch; /* likewise */
	uint32_t psn;
	uint32_t num_psn;
	uint32_t length;
	uint32_t imm;
	uint32_t rkey;
	uint32_t qkey;
	uint64_t remote_addr;
	uint64_t compare_add;
	uint64_t swap;
	uint8_t sgid[16];
	uint8_t dgid[16];
	uint32_t num_mem;
	uint32_t num_inline; /* bytes at inl, then num_mem is 0 */
	union {
		struct wire_mem mem[WIRE_MAX_SGE];
		uint8_t inl[WIRE_MAX_INLINE];
	};
};

enum wire_status {
	WIRE_OK,
	WIRE_RNR, /* rnr_timer says when again */
	WIRE_LOST, /* stands for silence: the requester waits for its timer */
	WIRE_NAK_REQUEST, /* IBV_WC_REM_INV_REQ_ERR */
	WIRE_NAK_ACCESS, /* IBV_WC_REM_ACCESS_ERR */
	WIRE_NAK_OPERATION, /* IBV_WC_REM_OP_ERR */
};

struct wire_ack {
	uint32_t dst_qpn; /* the requester's */
	uint32_t seq;
	uint32_t epoch;
	uint8_t status; /* enum wire_status */
	uint8_t rnr_timer; /* as in ibv_qp_attr.min_rnr_timer */
	uint16_t reserved;
	uint64_t result; /* of an atomic */
};

#endif
