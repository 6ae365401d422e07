/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The objects of the provider and how they hang together. Each bond object starts with the verbs
 * object that the application holds and names its members' objects with an m: mpd, mmr, mcq,
 * mqp. Those are ordinary objects of ordinary contexts, used by public verbs calls alone.
 *
 * Lock order: the progress thread's, then a QP's lock (its state), the context's, a CQ's, a QP's
 * sq_lock or rq_lock. post_send and post_recv take the last alone. See device.c for how bond0 comes to be, post.c and poll.c for the data path.
 */
#ifndef BOND_H
#define BOND_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "verbs_private.h"

#include "config.h"
#include "key.h"
#include "lock.h"
#include "notify.h"
#include "plan.h"
#include "sched.h"
#include "slot.h"

#define bond_container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define BOND_MAX_MSG (1ull << 31)	/* bytes; IBTA: a message is no longer */

enum {
	BOND_PORT = 1,			/* the port of each member that the bond uses */
	BOND_RNR_FOREVER = 7,		/* rnr_retry: never give up, ibv_modify_qp(3) */
	BOND_TAIL_BYTES = 128,		/* design 6: the end of a striped WRITE that waits for the rest */
	BOND_QPN_BITS = 24,
	BOND_QPN_LEAF_BITS = 12,
};

struct bond_channel;
struct bond_context;
struct bond_cq;
struct bond_qp;
struct bond_wr_builder;
struct ctrl;
struct ctrl_qp;
struct path;

struct bond_member {
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;	/* private; the progress thread reads it */
	struct ibv_device_attr_ex attr;
	char name[IBV_SYSFS_NAME_MAX];
	bool is_private;			/* opened by the glue, not from the device list */
	unsigned int spec;			/* its place in the configuration's list */
	/* QPN to path, two levels so that a completion finds its QP without a lock */
	_Atomic(_Atomic(struct path *) *) qpn_leaf[1 << (BOND_QPN_BITS - BOND_QPN_LEAF_BITS)];
};

struct bond_device {
	struct verbs_device vdev;
	const struct bond_config *cfg;
	struct verbs_sysfs_dev *primary;	/* the sysfs entry under the kernel's name; ours */
};

struct bond_context {
	struct verbs_context vctx;
	const struct bond_config *cfg;
	unsigned int nmembers;			/* member[0] is the primary */
	struct bond_member *member;
	struct lkey_table lkeys;
	pthread_mutex_t lock;			/* guards: qpn leaves, cqs, qps, channels */
	struct bond_cq *cqs;
	struct bond_qp *qps;
	struct bond_channel *channels;
	int async_pipe_wr;
	struct ctrl *ctrl;			/* NULL: path 0 only */
	struct bond_context *next;		/* progress.c's list */
};

struct bond_pd {
	struct ibv_pd pd;
	struct bond_pd *parent_of;		/* a parent domain's contained PD */
	uint64_t id;				/* names the key domain to peers */
	unsigned int nmembers;
	struct ibv_pd *mpd[BOND_MAX_MEMBERS];
};

struct bond_mr {
	struct verbs_mr vmr;
	struct lkey_node lkey;			/* in the context's table, by the primary's lkey */
	struct bond_mr *pd_next;
	uint64_t iova, length;			/* the range that its keys open */
	uint64_t pd_id;
	unsigned int nmembers;			/* 1: pinned to path 0 */
	struct ibv_mr *mmr[BOND_MAX_MEMBERS];
};

struct bond_ah {
	struct ibv_ah ah;
	struct ibv_ah *mah;
};

enum { MCQ_NO_QPN = -1 };

/* One member's CQ under an application's CQ. */
struct mcq {
	struct ibv_cq *cq;
	struct bond_cq *owner;
	uint32_t last_qpn;			/* the path of the last completion, or MCQ_NO_QPN */
	struct path *last_path;
	int room;				/* pieces that may be in flight towards it */
	atomic_int due;				/* pieces in flight towards it */
	atomic_int waiting;			/* paths that a held message waits for a marker of */
	atomic_int mark_room;			/* for markers, beside room; see notify.c */
	bool armed;
	struct mcq *fired_next;			/* in the progress thread's list, see there */
	bool fired;
};

struct bond_cq {
	struct verbs_cq vcq;
	struct bond_lock lock;			/* everything below but what is atomic */
	/* Something to look at besides the primary's CQ: CQ_REST_ and pieces due, see poll.c */
	atomic_uint rest;
	int poll_entries;			/* asked for by the poll that has the lock */
	atomic_bool polled;			/* by the application, since the last tick */
	unsigned int nmcqs;			/* members with a CQ so far, mcq[0] first */
	struct mcq mcq[BOND_MAX_MEMBERS];
	struct bond_qp *ready;			/* QPs with something to report */
	bool urgent;				/* something is there that solicited arming is for too */
	struct ibv_wc *soft;			/* completions that the progress thread polled */
	unsigned int soft_head, soft_tail, soft_mask;
	_Atomic(struct bond_qp *) attention;	/* QPs with news that no member's CQ will bring */
	/* completion events, see channel.c */
	struct bond_channel *channel;
	bool armed, armed_solicited;
	uint32_t events_delivered, async_delivered;
	/* the extended interface, see cq_ex.c */
	struct ibv_wc cur;
	bool polling;
	struct bond_cq *next;			/* the context's list */
	struct bond_context *bctx;
};

struct srq_entry {
	uint64_t wr_id;
	uint32_t next_free;
};

struct bond_srq {
	struct verbs_srq vsrq;
	struct ibv_srq *msrq;
	struct bond_lock lock;
	struct srq_entry *entry;
	uint32_t size, free;
	uint32_t events_delivered;
};

/* ---- the queue pair ---- */

enum wr_flags {
	WR_HELD = 1 << 2,			/* in the hold queue, whole or its tail */
	WR_TAIL = 1 << 3,			/* its tail is held */
};

/*
 * What every WR has, in one word. The first eight bytes lie as opcode and send_flags do in struct
 * ibv_send_wr, so that the short way through post takes both over at once.
 */
union wr_state {
	struct {
		uint8_t opcode;			/* enum ibv_wr_opcode */
		uint8_t status;			/* enum ibv_wc_status */
		uint8_t flags;			/* enum wr_flags */
		uint8_t num_sge;
		uint8_t send_flags;		/* IBV_SEND_SIGNALED also where the QP signals all */
		uint8_t pad;
		uint16_t left;			/* pieces not done yet, held ones too */
	};
	uint64_t word;
};

/* A work request of the application, from post until its completion was reported. */
struct sq_wr {
	uint64_t wr_id;
	union {
		union wr_state state;
		/* The same by name. */
		struct {
			uint8_t opcode, status, flags, num_sge, send_flags, pad;
			uint16_t left;
		};
	};
	uint64_t len;
	uint64_t raddr;
	uint32_t rkey;
	uint32_t imm;				/* imm_data or invalidate_rkey, as posted */
	uint32_t vendor_err;			/* where status is set */
	uint32_t pad32;
	uint64_t compare_add, swap;
};

enum piece_flags {
	PIECE_WHOLE = 1 << 0,			/* the WR as it was posted */
	PIECE_TRACKED = 1 << 1,			/* counted in the slots; one that is not is on the lead */
	PIECE_SYNC = 1 << 2,			/* a small READ or an atomic: later READs follow it */
	PIECE_DUE = 1 << 3,			/* counted in its mcq's due and in the scheduler */
	PIECE_TAIL = 1 << 4,
	PIECE_DOUBT = 1 << 5,			/* may fail: later WRs must not be ahead of it */
	PIECE_SHORT = 1 << 6,			/* took the short way */
	PIECE_ATOMIC = 1 << 7,			/* later spread WRITEs must not be ahead of it */
	PIECE_MARK = 1 << 8,			/* our own: a marker; off is its number on this path */
	PIECE_HEADER = 1 << 9,			/* our own: a header; off is its place in the ring */
	PIECE_IMM = 1 << 10,			/* the immediate of a WRITE whose data is spread */
};

struct piece {
	uint32_t flags;				/* enum piece_flags */
	uint32_t seq;				/* the WR it belongs to */
	/* The rest is not set in a piece of the short way: its WR says it. */
	uint64_t raddr;
	uint32_t len;
	uint32_t off;				/* where it starts in the WR */
	uint32_t rkey;				/* for this path's member */
	uint32_t pad;
};

/* One physical RC QP on a member and what is on its way there, oldest first. */
struct path {
	struct bond_qp *qp;
	struct ibv_qp *mqp;
	struct mcq *mcq;
	struct mcq *recv_mcq;			/* where markers come in; not the lead's */
	int mark_receives;			/* posted for them */
	unsigned int index, member, peer_member;
	uint32_t head, posted, tail;		/* [head, posted) in flight, [posted, tail) waiting */
	uint32_t mask, depth_wr;
	struct piece *ring;
	bool broken;				/* saw an error, or was taken to ERR; or never made */
	bool beacon;				/* the one that order_beacon() waits for is under way */
	uint32_t beacon_id;			/* which, so that one from before a RESET is not it */
	uint32_t psn;				/* the first that this side sends */
	uint64_t pieces, bytes;			/* of spread WRs, since the path was opened */
	uint32_t weight;			/* Mbit/s, of the slower end */
};

enum hold_kind {
	HOLD_TAIL,				/* the last bytes of a WRITE whose body is under way */
	HOLD_WR,				/* a WR that waits its turn */
	HOLD_DRAIN,				/* the same, until nothing is in flight: then cut anew */
	HOLD_NONE,				/* went while older ones stayed */
};

struct hold {
	uint32_t seq;
	uint8_t kind;				/* enum hold_kind */
};

enum bond_qp_kind {
	BOND_QP_PLAIN,				/* everything but RC: the primary's, calls passed through */
	BOND_QP_RC,
};

/* What became of the WRs of a QP; under its sq_lock. */
struct qp_stats {
	uint64_t spread, lead;			/* WRs by the way they went */
	uint64_t held, drained;			/* WRs that waited; those that waited for a new cut */
	uint64_t no_key;			/* took the lead because the peer's keys were not known */
};

struct bond_qp {
	struct verbs_qp vqp;
	struct bond_lock sq_lock;
	uint8_t busy;				/* BUSY_: all but one close the short way through post */
	uint8_t kind;				/* enum bond_qp_kind */
	bool sq_sig_all;
	bool error;				/* no more work goes out; what is accepted is flushed */
	/* the application's send queue: [sq_head, sq_tail) not yet reported */
	uint32_t sq_head, sq_tail, sq_mask;
	uint32_t sq_silent;			/* so many at the head are done and have no completion */
	uint64_t messages;			/* on the lead so far, from RESET: what consumes a receive */
	uint32_t max_send_wr;
	uint32_t max_inline_data;
	uint64_t short_limit;			/* bytes; what is as large does not take the short way */
	struct sq_wr *sq;
	uint32_t max_send_sge;
	bool fenced;				/* error, and every path was told */
	bool error_told;			/* a WR was reported with an error */
	uint8_t error_status;			/* the first failure's; 0 where the QP was taken to ERR */
	uint32_t error_seq;			/* the oldest WR that failed */
	struct ibv_sge *sq_sge;			/* max_send_sge for each entry of sq */
	char *sq_inline;			/* max_inline_data for each entry of sq */
	/* paths; path[0] is the lead */
	unsigned int npaths;			/* that may carry new work */
	unsigned int npaths_made;		/* that exist */
	uint32_t spread_from;			/* no spreading before every WR up to here is done */
	bool spreading;				/* the slots are kept */
	bool to_itself;				/* the peer is this QP */
	bool rnr_ends;				/* a message that finds no receive fails in the end */
	bool submitting;			/* the youngest WR is on its way for the first time ... */
	int refused;				/* ... and its member answered so; errno */
	uint32_t stripe_above, order_below;	/* bytes */
	int ordering;				/* enum config_ordering */
	uint32_t sync_left;			/* PIECE_SYNC in flight on the lead */
	uint32_t doubt_left;			/* PIECE_DOUBT in flight on the lead */
	uint32_t atomics_left;			/* PIECE_ATOMIC in flight on the lead */
	uint32_t off_lead;			/* pieces not done on other paths */
	uint32_t lead_due;			/* pieces of spread WRs not done on the lead */
	struct path path[BOND_MAX_PATHS];
	/* held work, oldest first */
	struct hold *hold;
	uint32_t hold_head, hold_tail, hold_blockers;
	struct slot_table *slots;		/* remote addresses */
	struct slot_table *local_slots;		/* where READs deliver */
	struct sched sched;
	struct rkey_cache rkeys;
	uint32_t peer_access;			/* the peer's QP's IBV_ACCESS_* */
	uint64_t pd_id;				/* of its PD, see pd.c */
	struct qp_stats stats;
	/* the application's receive queue */
	struct bond_lock rq_lock;
	uint32_t rq_head, rq_tail, rq_mask, max_recv_wr;
	uint64_t *rq;				/* wr_ids */
	struct notify notify;
	/* completion side, under the send CQ's lock */
	struct bond_qp *ready_next;
	bool on_ready;
	struct bond_qp *attention_next;
	atomic_bool on_attention;
	/* control path */
	pthread_mutex_t lock;			/* state changes; taken before sq_lock */
	struct ibv_qp_attr attr;		/* as the application set them */
	enum ibv_qp_state state;
	uint32_t generation;			/* counts RESETs */
	struct ctrl_qp *peer;			/* the pairing; under sq_lock for the data path */
	bool paths_settled;
	uint32_t events_delivered;
	struct ibv_qp_init_attr init_attr;
	struct bond_wr_builder *builder;
	struct bond_qp *next;			/* the context's list */
	struct bond_context *bctx;
};

/*
 * Where a QP's counters begin: near their end, so that no QP lives long without having wrapped, and
 * what would go wrong then does in every test.
 */
#define BOND_FIRST_SEQ ((uint32_t)-300)

/* wr_ids that go to a member; a send's is the piece's place in its path's ring. */
#define BOND_WRID_RECV (1ull << 63)
#define BOND_WRID_BEACON (1ull << 62)	/* and the path's beacon_id */

enum bond_busy {
	BUSY_STATE = 1 << 0,			/* not in RTS, or in error */
	BUSY_HOLD = 1 << 1,
	BUSY_OFF_LEAD = 1 << 2,
	BUSY_BACKLOG = 1 << 3,			/* the lead has pieces that are not posted yet */
	BUSY_PLAIN = 1 << 4,			/* not an RC QP */
	BUSY_SPREAD_PENDING = 1 << 5,		/* waits for spread_from */
};

static inline struct bond_context *to_bond_context(struct ibv_context *ctx)
{
	return bond_container_of(ctx, struct bond_context, vctx.context);
}

static inline struct bond_device *to_bond_device(struct ibv_device *dev)
{
	return bond_container_of(dev, struct bond_device, vdev.device);
}

static inline struct bond_pd *to_bond_pd(struct ibv_pd *pd)
{
	return bond_container_of(pd, struct bond_pd, pd);
}

static inline struct bond_mr *to_bond_mr(struct ibv_mr *mr)
{
	return bond_container_of(mr, struct bond_mr, vmr.ibv_mr);
}

static inline struct bond_ah *to_bond_ah(struct ibv_ah *ah)
{
	return bond_container_of(ah, struct bond_ah, ah);
}

static inline struct bond_cq *to_bond_cq(struct ibv_cq *cq)
{
	return bond_container_of(cq, struct bond_cq, vcq.cq);
}

static inline struct bond_srq *to_bond_srq(struct ibv_srq *srq)
{
	return bond_container_of(srq, struct bond_srq, vsrq.srq);
}

static inline struct bond_qp *to_bond_qp(struct ibv_qp *qp)
{
	return bond_container_of(qp, struct bond_qp, vqp.qp);
}

/* The SGEs of sq[seq]. */
static inline struct ibv_sge *sq_sges(const struct bond_qp *qp, uint32_t seq)
{
	return &qp->sq_sge[(size_t)(seq & qp->sq_mask) * qp->max_send_sge];
}

static inline struct ibv_context *bond_primary(struct bond_context *bctx)
{
	return bctx->member[0].ctx;
}

#endif
