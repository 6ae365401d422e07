/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The engine is the hardware of all fake NICs of this process: one thread that sends what is
 * posted, executes what arrives and completes what is acknowledged, all under engine.lock. Control
 * verbs take the same lock, so what they remove is not in use.
 *
 * Read next: requester.c, responder.c, transport.c.
 */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include <pthread.h>

#include "fake.h"

struct engine {
	/*
	 * Who wants the lock passes the gate first: the thread, which wants it again at once,
	 * stands in line there and lets a control verb go ahead.
	 */
	pthread_mutex_t gate;
	pthread_mutex_t lock;
	struct fake_ctl *ctl;
	uint32_t slot; /* of this process in ctl->proc[] */
	uint32_t num_contexts; /* lock */
	struct fake_context *contexts; /* lock */
	struct fake_qp *waiting; /* lock: QPs with wake_ns */
	struct fake_qp *qps[1 << FAKE_INDEX_BITS]; /* lock */
	uint32_t next_qp;

	pthread_t thread;
	bool running; /* lock */
	bool busy; /* the thread's: something was posted since its last round */
	int doorbell_fd;
	atomic_bool asleep;
	pthread_mutex_t kick_lock;
	struct fake_qp *kick_first; /* kick_lock */
	struct fake_qp **kick_last;
	_Atomic uint32_t num_kicked;
};

extern struct engine engine;

/* Contexts come and go; the first that needs it starts the thread, the last stops it. */
int engine_get(struct fake_context *context);
void engine_put(struct fake_context *context);

void engine_lock(void);
void engine_unlock(void);

/* QP has something to do. Any thread, any lock but kick_lock. */
void engine_kick(struct fake_qp *qp);
/* For instant devices: the calling thread does what QP, and what that kicks, has to do. */
void engine_run_here(struct fake_qp *qp);
/* Look at QP again at TIME_NS; engine.lock held. */
void engine_wake_at(struct fake_qp *qp, int64_t time_ns);

/* Gives QP a number and makes it known; 0 or a positive errno. engine.lock held. */
int engine_add_qp(struct fake_qp *qp);
void engine_remove_qp(struct fake_qp *qp);
struct fake_qp *engine_find_qp(uint32_t qpn);

static inline int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* requester.c: engine.lock held */
void requester_progress(struct fake_qp *qp);
void requester_ack(struct fake_qp *qp, const struct wire_ack *ack);
/* Flushes what is in the queues of a QP in ERR (or SQE). */
void requester_flush(struct fake_qp *qp);
void responder_flush(struct fake_qp *qp);

/* responder.c: executes REQ and fills in the answer. */
void responder_execute(const struct wire_req *req, struct wire_ack *ack);

/* transport.c: between processes. engine.lock held but for the first. */
int transport_start(void);
void transport_stop(void);
void transport_fork_child(void);
/* 0, EAGAIN (try again soon) or another positive errno (nobody there). */
int transport_send(const struct wire_req *req);
struct pollfd;
int transport_pollfds(struct pollfd *fds, int max);
void transport_receive(void);

/* copy.c: moves payload between the requester's memory (of REQ) and ADDR. 0 or a positive errno. */
int copy_from_requester(const struct wire_req *req, uint64_t offset, void *addr, uint64_t length);
int copy_to_requester(const struct wire_req *req, const void *addr, uint64_t length);
void copy_bytes(void *to, const void *from, size_t length);

/* event.c: descriptors that hold messages until somebody reads them, as the kernel's do. */
int event_create(void); /* -1 and errno */
int event_send(int fd, const void *message, size_t size);
/* Drops the unread messages whose first 8 bytes are ELEMENT; answers how many. */
uint32_t event_forget(int fd, size_t size, uint64_t element);
/* An asynchronous event of a context. */
int event_async(struct ibv_context *context, uint64_t element, enum ibv_event_type type);

/* uverbs.c: answers the one kernel command that libibverbs sends itself. 0 or a positive errno. */
int uverbs_install(void);

#endif
