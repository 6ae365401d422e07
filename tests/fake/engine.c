/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The engine's thread, its locks and its lists: who has something to do, and when.
 *
 * Not here: what is done, see requester.c and responder.c; sockets, see transport.c.
 */
#define _GNU_SOURCE
#include "engine.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#define MAX_POLLFDS (2 * FAKE_MAX_PROCS + 2)
/* Longest sleep: switches are looked at that often though nobody kicks. */
#define TICK_NS INT64_C(20000000)
#define LINGER_NS 20000

struct engine engine = {
	.gate = PTHREAD_MUTEX_INITIALIZER,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.kick_lock = PTHREAD_MUTEX_INITIALIZER,
	.kick_last = &engine.kick_first,
	.doorbell_fd = -1,
};

void engine_lock(void)
{
	pthread_mutex_lock(&engine.gate);
	pthread_mutex_lock(&engine.lock);
	pthread_mutex_unlock(&engine.gate);
}

void engine_unlock(void)
{
	pthread_mutex_unlock(&engine.lock);
}

void engine_kick(struct fake_qp *qp)
{
	uint64_t one = 1;

	if (atomic_exchange(&qp->kicked, true))
		return;
	pthread_mutex_lock(&engine.kick_lock);
	qp->kick_next = NULL;
	*engine.kick_last = qp;
	engine.kick_last = &qp->kick_next;
	pthread_mutex_unlock(&engine.kick_lock);
	/* Pairs with the thread, which says that it sleeps and then looks at num_kicked again. */
	atomic_fetch_add(&engine.num_kicked, 1);
	if (atomic_load(&engine.asleep) && write(engine.doorbell_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: it is awake */
}

static struct fake_qp *take_kicked(void)
{
	struct fake_qp *qp;

	pthread_mutex_lock(&engine.kick_lock);
	qp = engine.kick_first;
	if (qp) {
		engine.kick_first = qp->kick_next;
		if (!engine.kick_first)
			engine.kick_last = &engine.kick_first;
	}
	pthread_mutex_unlock(&engine.kick_lock);
	if (qp) {
		atomic_fetch_sub(&engine.num_kicked, 1);
		atomic_store(&qp->kicked, false);
	}
	return qp;
}

static void forget_kick(struct fake_qp *qp)
{
	struct fake_qp **p;

	pthread_mutex_lock(&engine.kick_lock);
	for (p = &engine.kick_first; *p && *p != qp; p = &(*p)->kick_next)
		;
	if (*p) {
		*p = qp->kick_next;
		if (!*p)
			engine.kick_last = p;
		atomic_fetch_sub(&engine.num_kicked, 1);
	}
	pthread_mutex_unlock(&engine.kick_lock);
}

static void forget_wait(struct fake_qp *qp)
{
	struct fake_qp **p;

	for (p = &engine.waiting; *p && *p != qp; p = &(*p)->wait_next)
		;
	if (*p)
		*p = qp->wait_next;
	qp->waiting = false;
	qp->wake_ns = 0;
}

void engine_wake_at(struct fake_qp *qp, int64_t time_ns)
{
	if (!qp->waiting) {
		qp->waiting = true;
		qp->wait_next = engine.waiting;
		engine.waiting = qp;
		qp->wake_ns = time_ns;
	} else if (time_ns < qp->wake_ns) {
		qp->wake_ns = time_ns;
	}
}

/* Runs the QPs whose time has come; answers when the next one's does. */
static int64_t run_waiting(int64_t now)
{
	struct fake_qp *list = engine.waiting, *qp;
	int64_t next = now + TICK_NS;

	engine.waiting = NULL;
	while ((qp = list)) {
		list = qp->wait_next;
		qp->waiting = false;
		if (qp->wake_ns > now)
			engine_wake_at(qp, qp->wake_ns);
		else
			requester_progress(qp);
	}
	for (qp = engine.waiting; qp; qp = qp->wait_next)
		if (qp->wake_ns < next)
			next = qp->wake_ns;
	return next;
}

void engine_run_here(struct fake_qp *qp)
{
	engine_lock();
	for (; qp; qp = take_kicked())
		requester_progress(qp);
	engine_unlock();
}

static void look_at_links(void)
{
	for (struct fake_context *c = engine.contexts; c; c = c->next) {
		bool down = fake_knob_get(c->dev->ctl, FAKE_LINK_DOWN);

		if (down != c->link_was_down)
			event_async(&c->vctx.context, 1,
				    down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
		c->link_was_down = down;
	}
}

/* One round: everything that is due now. Answers when to be back, 0 for at once. */
static int64_t run(void)
{
	struct fake_qp *qp;
	int64_t next;

	engine_lock();
	look_at_links();
	transport_receive();
	next = run_waiting(now_ns());
	engine.busy = atomic_load(&engine.num_kicked);
	/* Others may have the lock between two QPs. */
	for (uint32_t n = atomic_load(&engine.num_kicked); n; n--) {
		qp = take_kicked();
		if (!qp)
			break;
		requester_progress(qp);
		engine_unlock();
		engine_lock();
	}
	if (!engine.running)
		next = -1;
	else if (atomic_load(&engine.num_kicked))
		next = 0;
	else if (engine.waiting) /* the loop above may have added earlier ones */
		for (qp = engine.waiting; qp; qp = qp->wait_next)
			if (qp->wake_ns < next)
				next = qp->wake_ns;
	engine_unlock();
	return next;
}

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/*
 * Waits a moment for more work with the doorbell still silent: who posts one WR after the other
 * would else make two system calls for each. True if there is work.
 */
static bool linger(int64_t until_ns)
{
	int64_t now = now_ns(), end = now + LINGER_NS;

	for (; now < end && now < until_ns; now = now_ns()) {
		if (atomic_load(&engine.num_kicked))
			return true;
		relax();
	}
	return false;
}

static void sleep_until(int64_t time_ns)
{
	struct pollfd fds[MAX_POLLFDS];
	struct timespec ts = { 0 };
	uint64_t count;
	int num;

	engine_lock();
	num = transport_pollfds(fds, MAX_POLLFDS - 1);
	engine_unlock();
	fds[num++] = (struct pollfd){ .fd = engine.doorbell_fd, .events = POLLIN };
	atomic_store(&engine.asleep, true);
	time_ns -= now_ns();
	if (time_ns > 0 && !atomic_load(&engine.num_kicked))
		ts.tv_nsec = time_ns < TICK_NS ? time_ns : TICK_NS;
	ppoll(fds, num, &ts, NULL);
	atomic_store(&engine.asleep, false);
	if ((fds[num - 1].revents & POLLIN) && read(engine.doorbell_fd, &count, sizeof(count)) < 0)
		return; /* nothing to take: somebody else's look at it, harmless */
}

static void *engine_thread(void *arg)
{
	sigset_t all;
	int64_t next;

	(void)arg;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	prctl(PR_SET_TIMERSLACK, 1000UL);
	while ((next = run()) >= 0)
		if (next && !(engine.busy && linger(next)))
			sleep_until(next);
	return NULL;
}

static int start(void)
{
	uint32_t seed;
	int ret;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return errno;
	engine.next_qp = seed;
	engine.doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine.doorbell_fd < 0)
		return errno;
	ret = transport_start();
	if (ret) {
		close(engine.doorbell_fd);
		engine.doorbell_fd = -1;
	}
	return ret;
}

static int start_thread(void)
{
	int ret;

	engine.running = true;
	ret = pthread_create(&engine.thread, NULL, engine_thread, NULL);
	if (ret)
		engine.running = false;
	return ret;
}

static void stop(void)
{
	transport_stop();
	close(engine.doorbell_fd);
	engine.doorbell_fd = -1;
}

int engine_get(struct fake_context *context)
{
	int ret = 0;

	engine_lock();
	if (!engine.num_contexts) {
		engine.ctl = fake_ctl_map();
		ret = start();
		if (ret)
			goto out;
	}
	if (!engine.running && !context->no_data)
		ret = start_thread();
	if (ret) {
		if (!engine.num_contexts)
			stop();
		goto out;
	}
	engine.num_contexts++;
	context->next = engine.contexts;
	engine.contexts = context;
out:
	engine_unlock();
	return ret;
}

void engine_put(struct fake_context *context)
{
	struct fake_context **p;
	bool last, had_thread;
	uint64_t one = 1;

	engine_lock();
	for (p = &engine.contexts; *p != context; p = &(*p)->next)
		;
	*p = context->next;
	last = --engine.num_contexts == 0;
	had_thread = engine.running;
	if (last)
		engine.running = false;
	engine_unlock();
	if (!last)
		return;
	if (had_thread) {
		if (write(engine.doorbell_fd, &one, sizeof(one)) < 0)
			return; /* cannot be: the counter is never full */
		pthread_join(engine.thread, NULL);
	}
	stop();
}

int engine_add_qp(struct fake_qp *qp)
{
	for (uint32_t i = 0; i < 1u << FAKE_INDEX_BITS; i++) {
		uint32_t index = engine.next_qp++ & ((1u << FAKE_INDEX_BITS) - 1);

		if (index < 2 || engine.qps[index])
			continue;
		engine.qps[index] = qp;
		qp->qpn = engine.slot << FAKE_INDEX_BITS | index;
		return 0;
	}
	return ENOMEM;
}

void engine_remove_qp(struct fake_qp *qp)
{
	engine.qps[qp->qpn & ((1u << FAKE_INDEX_BITS) - 1)] = NULL;
	forget_wait(qp);
	forget_kick(qp);
}

struct fake_qp *engine_find_qp(uint32_t qpn)
{
	if (qpn >> FAKE_INDEX_BITS != engine.slot)
		return NULL;
	return engine.qps[qpn & ((1u << FAKE_INDEX_BITS) - 1)];
}

/* ---- fork: the child has NICs of its own, and what the parent opened is nothing there ---- */

static void fork_prepare(void)
{
	engine_lock();
	pthread_mutex_lock(&engine.kick_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&engine.kick_lock);
	engine_unlock();
}

static void fork_child(void)
{
	transport_fork_child();
	if (engine.doorbell_fd >= 0)
		close(engine.doorbell_fd);
	engine = (struct engine){
		.gate = PTHREAD_MUTEX_INITIALIZER,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.kick_lock = PTHREAD_MUTEX_INITIALIZER,
		.kick_last = &engine.kick_first,
		.doorbell_fd = -1,
	};
}

static __attribute__((constructor)) void fork_register(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}
