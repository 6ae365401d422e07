/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The switches and counters of the fake NICs, shared by everything that runs inside one fake-run:
 * the provider, test programs and the fake-ctl tool map the same file, $FAKE_DIR/ctl. A switch acts
 * on the next operation; nobody needs to be told.
 *
 * Not here: what a switch does; grep for its name in requester.c, responder.c and fake_*.c.
 * Test programs need only the functions at the end.
 */
#ifndef FAKE_CTL_H
#define FAKE_CTL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_MAX_DEVS 16
#define FAKE_MAX_GIDS 4
#define FAKE_MAX_PROCS 256
#define FAKE_NAME_MAX 64

/* X(enumerator, name, default, what it does) */
#define FAKE_SWITCHES(X) \
	X(DELAY_US, "delay_us", 0, "time from post to execution at the peer") \
	X(JITTER_US, "jitter_us", 0, "random extra delay, 0..n; never reorders within a QP") \
	X(ACK_DELAY_US, "ack_delay_us", 0, "time from execution at the peer to completion") \
	X(RATE_MB_S, "rate_mb_s", 0, "line rate in 10^6 bytes per second; 0 is unlimited") \
	X(LOSE, "lose", 0, "1: all packets lost; 2: acks lost; 3: device stands still") \
	X(LINK_DOWN, "link_down", 0, "1: port down (with its event), packets lost") \
	X(INSTANT, "instant", 0, "at open: 1: execute inside post; 2: same, WRITE moves no data") \
	X(PARTIAL_EVERY, "partial_every", 0, "each n-th post call is cut short; 0: none") \
	X(PARTIAL_POSTED, "partial_posted", 0, "WRs that such a call still accepts") \
	X(PARTIAL_RET, "partial_ret", 12, "what it returns: 12 (ENOMEM), 0, -12, ...") \
	X(SQ_LIMIT, "sq_limit", 0, "WRs that fit an SQ, whatever create_qp said; 0: as said") \
	X(KEY_REUSE, "key_reuse", 0, "1: reg_mr gives the keys of the MR deregistered last") \
	X(FAIL_OPEN, "fail_open", 0, "the n-th next open fails; likewise below") \
	X(FAIL_ALLOC_PD, "fail_alloc_pd", 0, "") \
	X(FAIL_REG_MR, "fail_reg_mr", 0, "") \
	X(FAIL_CREATE_CQ, "fail_create_cq", 0, "") \
	X(FAIL_CREATE_QP, "fail_create_qp", 0, "") \
	X(FAIL_MODIFY_QP, "fail_modify_qp", 0, "") \
	X(FAIL_CREATE_SRQ, "fail_create_srq", 0, "") \
	X(FAIL_CREATE_AH, "fail_create_ah", 0, "") \
	X(FAIL_ERRNO, "fail_errno", 12, "errno of those failures")

/* Device attributes: read when asked, so set them before the device is opened. */
#define FAKE_ATTRS(X) \
	X(ACTIVE_MTU, "active_mtu", 5, "enum ibv_mtu: 5 is 4096") \
	X(ACTIVE_SPEED, "active_speed", 32, "as in ibv_port_attr: 32 is EDR") \
	X(ACTIVE_WIDTH, "active_width", 2, "as in ibv_port_attr: 2 is 4X") \
	X(MAX_QP, "max_qp", 16384, "") \
	X(MAX_QP_WR, "max_qp_wr", 16384, "") \
	X(MAX_SGE, "max_sge", 16, "") \
	X(MAX_INLINE, "max_inline", 512, "bytes") \
	X(MAX_CQ, "max_cq", 16384, "") \
	X(MAX_CQE, "max_cqe", 1 << 20, "") \
	X(MAX_MR, "max_mr", 32768, "") \
	X(MAX_PD, "max_pd", 4096, "") \
	X(MAX_SRQ, "max_srq", 1024, "") \
	X(MAX_SRQ_WR, "max_srq_wr", 16384, "") \
	X(MAX_RD_ATOM, "max_rd_atom", 16, "") \
	X(MAX_MSG_SZ, "max_msg_sz", 1 << 30, "bytes") \
	X(ATOMIC_CAP, "atomic_cap", 1, "enum ibv_atomic_cap: 0 none, 1 HCA, 2 global") \
	X(DEVICE_CAP_FLAGS, "device_cap_flags", 0, "or-ed to those of the fake")

/* Written by the provider. */
#define FAKE_COUNTERS(X) \
	X(POSTED_WR, "posted_wr", 0, "send WRs accepted") \
	X(DONE_WR, "done_wr", 0, "send WRs done without error") \
	X(TX_BYTES, "tx_bytes", 0, "payload of SEND, WRITE and READ of this device's QPs") \
	X(RX_BYTES, "rx_bytes", 0, "payload executed by QPs of this device as responder") \
	X(RX_WRITE, "rx_write", 0, "WRITEs executed as responder") \
	X(RX_READ, "rx_read", 0, "READs executed as responder") \
	X(RX_SEND, "rx_send", 0, "SENDs executed as responder") \
	X(RX_ATOMIC, "rx_atomic", 0, "atomics executed as responder") \
	X(RNR_NAKS, "rnr_naks", 0, "as responder") \
	X(RETRIES, "retries", 0, "retransmissions as requester") \
	X(CQ_OVERFLOWS, "cq_overflows", 0, "") \
	X(LIVE_PDS, "live_pds", 0, "objects that exist") \
	X(LIVE_MRS, "live_mrs", 0, "") \
	X(LIVE_CQS, "live_cqs", 0, "") \
	X(LIVE_QPS, "live_qps", 0, "") \
	X(LIVE_SRQS, "live_srqs", 0, "") \
	X(LIVE_AHS, "live_ahs", 0, "")

#define FAKE_KNOBS(X) FAKE_SWITCHES(X) FAKE_ATTRS(X) FAKE_COUNTERS(X)

enum fake_knob {
#define X(id, name, def, help) FAKE_##id,
	FAKE_KNOBS(X)
#undef X
	FAKE_NUM_KNOBS
};

struct fake_ctl_dev {
	char name[FAKE_NAME_MAX];
	uint8_t gid[FAKE_MAX_GIDS][16]; /* zero where the table is empty */
	_Atomic int64_t wire_free_ns; /* CLOCK_MONOTONIC; when the line has sent all it was given */
	_Atomic int64_t knob[FAKE_NUM_KNOBS];
};

struct fake_ctl {
	uint32_t size_bytes; /* sizeof(struct fake_ctl) of who made it */
	uint32_t num_devs;
	_Atomic int32_t proc[FAKE_MAX_PROCS]; /* pid that owns the slot, 0 if free; slot 0 unused */
	struct fake_ctl_dev dev[FAKE_MAX_DEVS];
};

/* Maps $FAKE_DIR/ctl at the first call. NULL and errno outside of fake-run. */
struct fake_ctl *fake_ctl_map(void);

/* The device NAME, NULL and errno = ENODEV if there is none. */
struct fake_ctl_dev *fake_ctl_dev(const char *name);

/* For test programs: NULL as device name means every device. Return 0 or a positive errno. */
int fake_ctl_set(const char *dev, enum fake_knob knob, int64_t value);
/* -1 if there is no such device, else the value. */
int64_t fake_ctl_get(const char *dev, enum fake_knob knob);
/* All switches (not attributes, not counters) of all devices as at start. */
void fake_ctl_reset(void);
/* All counters but those of objects that exist. */
void fake_ctl_zero_counters(void);

/* Name, default and help of a knob; the number of a name or -1. */
const char *fake_knob_name(enum fake_knob knob);
const char *fake_knob_help(enum fake_knob knob);
int64_t fake_knob_default(enum fake_knob knob);
int fake_knob_find(const char *name);

static inline int64_t fake_knob_get(struct fake_ctl_dev *dev, enum fake_knob knob)
{
	return atomic_load_explicit(&dev->knob[knob], memory_order_relaxed);
}

static inline void fake_knob_add(struct fake_ctl_dev *dev, enum fake_knob knob, int64_t n)
{
	atomic_fetch_add_explicit(&dev->knob[knob], n, memory_order_relaxed);
}

#endif
