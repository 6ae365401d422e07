/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The objects of the fake NIC and who guards what.
 *
 * Locks, outer first: sq_lock and poll_lock, which an application may hold for long (wr_start,
 * start_poll) and the engine never takes; engine.lock (the "hardware": QP state, keys, everything
 * that moves); rq->lock; cq->lock. Application threads take no engine.lock in post and poll.
 * Indices of rings run freely (uint32_t); rings are powers of two, so that they may wrap, and depth
 * says how much of one may be used.
 *
 * Read next: engine.h (who does the work), requester.c and responder.c (what the work is).
 */
#ifndef FAKE_H
#define FAKE_H

#include "verbs_private.h"

#include "fake_ctl.h"
#include "wire.h"

#define FAKE_INDEX_BITS 16
#define FAKE_GRH_BYTES 40

static inline uint32_t ring_mask(uint32_t depth)
{
	uint32_t size = 1;

	while (size < depth)
		size *= 2;
	return size - 1;
}

struct fake_device {
	struct verbs_device vdev; /* first */
	struct fake_ctl_dev *ctl;
	uint32_t index;
};

struct fake_context {
	struct verbs_context vctx; /* first but for its own head */
	struct fake_device *dev;
	struct fake_context *next; /* of the engine, for port events */
	bool link_was_down;
	bool no_data; /* see instant.c */
};

struct fake_pd {
	struct ibv_pd pd;
	atomic_int users;
};

struct fake_mr {
	struct verbs_mr vmr; /* first */
	struct fake_pd *pd;
	struct fake_device *dev;
	uint8_t *addr;
	uint64_t iova;
	uint64_t length;
	uint32_t index;
	bool remote_valid; /* until SEND_WITH_INV */
};

struct fake_ah {
	struct ibv_ah ah;
	struct fake_pd *pd;
	struct ibv_ah_attr attr;
};

struct fake_cqe {
	struct ibv_wc wc;
	struct fake_qp *qp;
	struct fake_rq *rq; /* whose WR this was, NULL for a send */
	uint32_t free_to; /* of a send: slots below are free once this is polled */
	uint64_t time_ns;
};

enum fake_arm { FAKE_UNARMED, FAKE_ARMED_SOLICITED, FAKE_ARMED_ANY };

struct fake_cq {
	struct verbs_cq vcq; /* first */
	pthread_mutex_t lock;
	pthread_mutex_t poll_lock; /* from start_poll to end_poll; outside of lock */
	struct fake_cqe *ring;
	uint32_t depth;
	uint32_t mask; /* of the ring */
	_Atomic uint32_t head; /* written under lock, read without */
	_Atomic uint32_t tail;
	enum fake_arm armed;
	bool overflowed;
	bool single_thread; /* IBV_CREATE_CQ_ATTR_SINGLE_THREADED */
	uint32_t events_sent;
	uint32_t async_sent;
	atomic_int users;
	struct fake_cqe cur; /* of start_poll and next_poll */
};

struct fake_recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t length;
};

/* A receive queue: a QP's own or an SRQ's. */
struct fake_rq {
	pthread_mutex_t lock;
	struct fake_recv_wqe *wqe;
	struct ibv_sge *sge; /* max_sge for each wqe */
	uint32_t depth;
	uint32_t mask;
	uint32_t max_sge;
	uint32_t head; /* posted */
	uint32_t next; /* first not consumed */
	_Atomic uint32_t tail; /* completions polled, or forgotten with their QP */
};

struct fake_srq {
	struct verbs_srq vsrq; /* first */
	struct fake_pd *pd;
	struct fake_rq rq;
	uint32_t limit;
	uint32_t async_sent;
	atomic_int users;
};

struct fake_send_wqe {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t compare_add;
	uint64_t swap;
	struct ibv_ah_attr ah;
	uint32_t opcode; /* enum ibv_wr_opcode */
	uint32_t flags; /* enum ibv_send_flags */
	uint32_t imm; /* or rkey to invalidate */
	uint32_t rkey;
	uint32_t remote_qpn;
	uint32_t remote_qkey;
	uint32_t num_sge;
	uint32_t length;
	/* Below is the engine's. */
	int64_t due_ns;
	int64_t ack_due_ns;
	uint64_t result;
	uint32_t psn;
	uint32_t num_psn;
	enum ibv_wc_status status;
	bool acked;
};

struct fake_atomic_result {
	uint32_t psn;
	bool valid;
	uint64_t value;
};

#define FAKE_ATOMIC_RESULTS 16

struct fake_qp {
	struct verbs_qp vqp; /* first */
	struct fake_pd *pd;
	struct fake_device *dev;
	struct fake_cq *scq;
	struct fake_cq *rcq;
	struct fake_srq *srq;
	uint32_t qpn;
	enum ibv_qp_type type;
	bool sig_all;
	bool instant; /* the posting thread does the engine's work */
	struct ibv_qp_cap cap;

	_Atomic enum ibv_qp_state state; /* written under engine.lock */
	struct ibv_qp_attr attr; /* engine.lock */
	int dst_dev; /* index of the device that has attr.ah_attr's dgid, or -1 */

	pthread_mutex_t sq_lock;
	uint32_t sq_mask;
	struct fake_send_wqe *sq;
	struct ibv_sge *sq_sge;
	uint8_t *sq_inline;
	_Atomic uint32_t sq_head; /* posted; written under sq_lock */
	_Atomic uint32_t sq_tail; /* first whose slot is not free: poll advances it */
	uint32_t post_calls; /* sq_lock, for partial_every */
	/* ibv_wr_*: between wr_start and wr_complete, under sq_lock. */
	uint32_t wr_head;
	int wr_err;

	/* The requester, engine.lock. */
	uint32_t sq_seen; /* stamped with the time they are due */
	uint32_t sq_next; /* to be sent */
	uint32_t sq_acked; /* to be retired */
	uint32_t sq_psn;
	uint32_t tx_epoch; /* goes up when sq_next goes back */
	uint32_t num_remote; /* messages sent to another process and not answered */
	uint32_t num_reads; /* READs and atomics sent and not retired */
	int64_t resume_ns; /* RNR or retry timer; INT64_MAX: for ever */
	int64_t wake_ns; /* when to look again, 0: not before a kick */
	bool failing; /* a WR ended with an error that is not retired: nothing more is sent */
	uint32_t num_lost; /* since the last answer; above retry_cnt it is an error */
	uint32_t num_rnr; /* likewise, against rnr_retry */
	uint64_t rng;

	/* The responder, engine.lock; rq.lock for the queue. */
	struct fake_rq own_rq;
	struct fake_rq *rq; /* own_rq or the SRQ's */
	uint32_t rq_psn;
	bool srq_last_wqe; /* event raised since RESET */
	struct fake_atomic_result atomic_results[FAKE_ATOMIC_RESULTS];
	uint32_t num_atomics;

	uint32_t async_sent; /* engine.lock */
	atomic_bool kicked;
	struct fake_qp *kick_next; /* engine.kick_lock */
	struct fake_qp *wait_next; /* engine.lock */
	bool waiting;
};

#define TO_FAKE(TYPE, p) ((struct TYPE *)(void *)(p))
#define to_fake_device(p) TO_FAKE(fake_device, p)
#define to_fake_pd(p) TO_FAKE(fake_pd, p)
#define to_fake_mr(p) TO_FAKE(fake_mr, p)
#define to_fake_cq(p) TO_FAKE(fake_cq, p)
#define to_fake_qp(p) TO_FAKE(fake_qp, p)
#define to_fake_srq(p) TO_FAKE(fake_srq, p)
#define to_fake_ah(p) TO_FAKE(fake_ah, p)

static inline struct fake_context *to_fake_context(struct ibv_context *context)
{
	return (struct fake_context *)(void *)((char *)context -
					       offsetof(struct fake_context, vctx.context));
}

static inline struct fake_device *context_device(struct ibv_context *context)
{
	return to_fake_device(context->device);
}

/* fake_dev.c: true (and errno set) if this creation is to fail; FAKE_FAIL_*. */
bool fake_fails(struct fake_device *dev, enum fake_knob knob);
int fake_device_of_gid(const uint8_t *gid);

/* fake_query.c */
int fake_query_device(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		      struct ibv_device_attr_ex *attr, size_t size);
int fake_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);

/* fake_mr.c */
struct ibv_pd *fake_alloc_pd(struct ibv_context *context);
int fake_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);
int fake_dereg_mr(struct verbs_mr *vmr);
/*
 * The host address of [addr, addr + length) in the MR of KEY if PD owns it and it has all of
 * ACCESS; NULL otherwise. engine.lock held.
 */
uint8_t *fake_mr_local(struct fake_pd *pd, uint32_t lkey, uint64_t addr, uint64_t length,
		       int access);
uint8_t *fake_mr_remote(struct fake_pd *pd, uint32_t rkey, uint64_t addr, uint64_t length,
			int access);
bool fake_mr_invalidate(struct fake_pd *pd, uint32_t rkey);

/* fake_ah.c */
struct ibv_ah *fake_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int fake_destroy_ah(struct ibv_ah *ah);

/* fake_cq.c */
struct ibv_cq *fake_create_cq(struct ibv_context *context, int cqe,
			      struct ibv_comp_channel *channel, int vector);
struct ibv_cq_ex *fake_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int fake_destroy_cq(struct ibv_cq *cq);
int fake_resize_cq(struct ibv_cq *cq, int cqe);
int fake_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* Takes one completion out of the ring; false if there is none. cq->lock held. */
bool fake_cq_pop(struct fake_cq *cq, struct fake_cqe *cqe);
static inline void fake_cq_free_slots(const struct fake_cqe *cqe)
{
	if (cqe->rq)
		atomic_fetch_add_explicit(&cqe->rq->tail, 1, memory_order_release);
	else
		atomic_store_explicit(&cqe->qp->sq_tail, cqe->free_to, memory_order_release);
}
/* False if the CQ overflowed. */
bool fake_cq_push(struct fake_cq *cq, const struct fake_cqe *cqe, bool solicited);
/* Forgets the completions of QP. */
void fake_cq_clean(struct fake_cq *cq, struct fake_qp *qp);
/* fake_cq_ex.c */
void fake_cq_ex_setup(struct fake_cq *cq);

/* fake_rq.c */
int fake_rq_init(struct fake_rq *rq, uint32_t depth, uint32_t max_sge);
void fake_rq_fini(struct fake_rq *rq);
int fake_rq_post(struct fake_rq *rq, struct ibv_recv_wr *wr);
struct ibv_srq *fake_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *fake_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int fake_destroy_srq(struct ibv_srq *srq);
int fake_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int fake_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int fake_get_srq_num(struct ibv_srq *srq, uint32_t *num);
int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* After a receive was taken from the SRQ: raises the limit event. engine.lock held. */
void fake_srq_taken(struct fake_srq *srq);

/* fake_qp.c */
struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *fake_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int fake_destroy_qp(struct ibv_qp *qp);
int fake_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init);
/* fake_qp_modify.c */
int fake_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
/* Also from the engine, which holds its lock. */
void fake_qp_set_state(struct fake_qp *qp, enum ibv_qp_state state);
void fake_qp_quiesce(struct fake_qp *qp);
bool fake_gid_index_valid(struct fake_device *dev, unsigned int index);
void fake_qp_event(struct fake_qp *qp, enum ibv_event_type type);

/* fake_post.c */
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* For both ways to post, sq_lock held. */
bool fake_sq_has_room(struct fake_qp *qp, uint32_t head);
bool fake_opcode_allowed(enum ibv_qp_type type, enum ibv_wr_opcode opcode);
struct fake_send_wqe *fake_sq_wqe(struct fake_qp *qp, uint32_t index);
struct ibv_sge *fake_sq_sge(struct fake_qp *qp, uint32_t index);
uint8_t *fake_sq_inline(struct fake_qp *qp, uint32_t index);
/* After HEAD was published; sq_lock not held. */
void fake_sq_posted(struct fake_qp *qp, uint32_t num);
/* instant.c */
extern const struct verbs_context_ops instant_ops;
/* fake_wr.c */
int fake_wr_setup(struct fake_qp *qp, uint64_t ops);

#endif
