/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See progress.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cq.h"
#include "log.h"
#include "objects.h"
#include "order.h"
#include "path.h"
#include "progress.h"

enum {
	TICK_MS = 1,
	IDLE_TICKS = 100,		/* without held work, until the thread sleeps */
	EVENTS = 16,
};

/* What an epoll event is about; its data.ptr is the watch, NULL for the first. */
enum source { SOURCE_WAKE, SOURCE_ASYNC, SOURCE_CQ };

struct watch {
	struct watch *next;
	struct bond_context *bctx;
	unsigned int member;
	enum source source;
	int fd;
};

static struct {
	pthread_mutex_t gate;		/* one starts or stops the thread at a time; before lock */
	pthread_mutex_t lock;		/* guards everything here, and the thread works under it */
	pthread_t thread;
	bool running, stop;
	int epoll_fd, wake_fd;
	struct bond_context *contexts;
	struct watch *watches;
	struct mcq *fired;		/* whose event is still to be handled */
	atomic_bool ticking;
} progress = { .gate = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
	      .epoll_fd = -1, .wake_fd = -1 };

void progress_stop_world(void)
{
	pthread_mutex_lock(&progress.lock);
}

void progress_start_world(void)
{
	pthread_mutex_unlock(&progress.lock);
}

void progress_want(void)
{
	uint64_t one = 1;

	if (atomic_load_explicit(&progress.ticking, memory_order_relaxed) ||
	    atomic_exchange(&progress.ticking, true))
		return;
	if (write(progress.wake_fd, &one, sizeof(one)) < 0)
		return;
}

/*
 * Is work of the QP held or under way on other paths? The lock orders this with progress_want(),
 * which its holder calls: either the work is seen here, or the end of ticking there.
 */
static bool qp_at_work(struct bond_qp *qp)
{
	unsigned int i;
	bool yes;

	/* In use, so not idle. */
	if (!bond_trylock(&qp->sq_lock))
		return true;
	yes = qp->busy & (BUSY_HOLD | BUSY_BACKLOG | BUSY_OFF_LEAD);
	/* What a member did not take, though none of its completions may be due that would say when. */
	for (i = 0; yes && i < qp->npaths_made; i++)
		if (path_backlog(&qp->path[i]))
			path_push(&qp->path[i]);
	if (qp->error && !qp->fenced) {
		order_fence(qp);
		bond_qp_attention(qp);
	}
	bond_unlock(&qp->sq_lock);
	return yes;
}

/* Moves the QP's work on where nobody has polled since the last tick. false: there is none. */
static bool tick_qp(struct bond_qp *qp)
{
	struct bond_cq *cq;

	if (qp->kind != BOND_QP_RC || !qp_at_work(qp))
		return false;
	cq = to_bond_cq(qp->vqp.qp.send_cq);
	/* QPs that share the CQ take turns in asking; the others look in vain, or are looked after. */
	if (atomic_exchange_explicit(&cq->polled, false, memory_order_relaxed))
		return true;
	if (bond_trylock(&cq->lock)) {
		bond_cq_progress(cq);
		bond_cq_notify_due(cq, false);
		bond_unlock(&cq->lock);
	}
	return true;
}

/* News that no member's completion brings, and members' CQs that came after the arming. */
static bool tick_cq(struct bond_cq *cq)
{
	unsigned int rest = atomic_load(&cq->rest);
	bool due = rest >= CQ_REST_DUE;

	if (!bond_trylock(&cq->lock))
		return true;
	bond_cq_arm_new(cq);
	if (rest & CQ_REST_ATTENTION || (due && cq->armed)) {
		bond_cq_progress(cq);
		bond_cq_notify_due(cq, false);
	}
	due &= cq->armed;
	bond_unlock(&cq->lock);
	return due;
}

static void fired_add(struct mcq *mcq)
{
	if (mcq->fired)
		return;
	mcq->fired = true;
	mcq->fired_next = progress.fired;
	progress.fired = mcq;
}

/*
 * The application may have the lock for long, between ibv_start_poll() and ibv_end_poll(); the
 * other CQs do not wait for it.
 */
static void fired_handle(void)
{
	struct mcq *mcq = progress.fired, *next;

	progress.fired = NULL;
	for (; mcq; mcq = next) {
		next = mcq->fired_next;
		mcq->fired = false;
		if (bond_trylock(&mcq->owner->lock)) {
			bond_cq_look(mcq);
			bond_unlock(&mcq->owner->lock);
		} else {
			fired_add(mcq);
		}
	}
	if (progress.fired)
		atomic_store(&progress.ticking, true);
}

void progress_forget_cq(struct bond_cq *cq)
{
	struct mcq **at = &progress.fired;

	while (*at)
		if ((*at)->owner == cq)
			*at = (*at)->fired_next;
		else
			at = &(*at)->fired_next;
}

static bool tick(void)
{
	struct bond_context *bctx;
	struct bond_qp *qp;
	struct bond_cq *cq;
	bool held = progress.fired;

	for (bctx = progress.contexts; bctx; bctx = bctx->next) {
		pthread_mutex_lock(&bctx->lock);
		for (qp = bctx->qps; qp; qp = qp->next)
			held |= tick_qp(qp);
		for (cq = bctx->cqs; cq; cq = cq->next)
			if (cq->channel)
				held |= tick_cq(cq);
		pthread_mutex_unlock(&bctx->lock);
	}
	return held;
}

static void read_cq_events(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		fired_add(context);
	}
}

static void handle(const struct epoll_event *event)
{
	struct watch *watch;
	uint64_t count;

	if (!event->data.ptr) {
		if (read(progress.wake_fd, &count, sizeof(count)) < 0)
			return;
		return;
	}
	/* It may have been taken away since epoll_wait() saw it. */
	for (watch = progress.watches; watch && watch != event->data.ptr; watch = watch->next)
		;
	if (!watch)
		return;
	if (watch->source == SOURCE_ASYNC)
		bond_event_member(watch->bctx, watch->member);
	else
		read_cq_events(watch->bctx->member[watch->member].channel);
}

static void *progress_thread(void *arg)
{
	struct epoll_event event[EVENTS];
	unsigned int idle = 0;
	int i, n;

	(void)arg;
	for (;;) {
		n = epoll_wait(progress.epoll_fd, event, EVENTS,
			       atomic_load(&progress.ticking) ? TICK_MS : -1);
		pthread_mutex_lock(&progress.lock);
		if (progress.stop)
			break;
		for (i = 0; i < n; i++)
			handle(&event[i]);
		fired_handle();
		if (atomic_load(&progress.ticking)) {
			idle = tick() ? 0 : idle + 1;
			if (idle >= IDLE_TICKS) {
				atomic_store(&progress.ticking, false);
				/* What was held before the store is seen here, later work wakes us. */
				if (tick())
					atomic_store(&progress.ticking, true);
				idle = 0;
			}
		}
		pthread_mutex_unlock(&progress.lock);
	}
	pthread_mutex_unlock(&progress.lock);
	return NULL;
}

static int thread_start(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	sigset_t all, old;
	int err;

	progress.stop = false;
	progress.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (progress.epoll_fd < 0)
		return errno;
	progress.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (progress.wake_fd < 0) {
		err = errno;
		goto err_close_epoll;
	}
	if (epoll_ctl(progress.epoll_fd, EPOLL_CTL_ADD, progress.wake_fd, &event)) {
		err = errno;
		goto err_close_wake;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&progress.thread, NULL, progress_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		goto err_close_wake;
	progress.running = true;
	return 0;

err_close_wake:
	close(progress.wake_fd);
	progress.wake_fd = -1;
err_close_epoll:
	close(progress.epoll_fd);
	progress.epoll_fd = -1;
	return err;
}

static int watch_add(struct bond_context *bctx, unsigned int member, enum source source, int fd)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = watch };

	if (!watch)
		return ENOMEM;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	*watch = (struct watch){ progress.watches, bctx, member, source, fd };
	if (epoll_ctl(progress.epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		free(watch);
		return errno;
	}
	progress.watches = watch;
	return 0;
}

static void watch_del_all(struct bond_context *bctx)
{
	struct watch **at = &progress.watches, *watch;

	while ((watch = *at)) {
		if (watch->bctx != bctx) {
			at = &watch->next;
			continue;
		}
		epoll_ctl(progress.epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
		*at = watch->next;
		free(watch);
	}
}

/* And with the last context the thread. The gate is held. */
static void context_del(struct bond_context *bctx)
{
	struct bond_context **at;
	uint64_t one = 1;
	bool last;

	pthread_mutex_lock(&progress.lock);
	watch_del_all(bctx);
	for (at = &progress.contexts; *at && *at != bctx; at = &(*at)->next)
		;
	if (*at)
		*at = bctx->next;
	last = !progress.contexts && progress.running;
	if (last) {
		progress.stop = true;
		progress.running = false;
		if (write(progress.wake_fd, &one, sizeof(one)) < 0)
			bond_dbg("progress thread cannot be woken: %d", errno);
	}
	pthread_mutex_unlock(&progress.lock);
	if (!last)
		return;
	pthread_join(progress.thread, NULL);
	close(progress.wake_fd);
	close(progress.epoll_fd);
	progress.wake_fd = progress.epoll_fd = -1;
}

int progress_add(struct bond_context *bctx)
{
	unsigned int i;
	int err = 0;

	pthread_mutex_lock(&progress.gate);
	pthread_mutex_lock(&progress.lock);
	if (!progress.running)
		err = thread_start();
	for (i = 0; i < bctx->nmembers && !err; i++) {
		err = watch_add(bctx, i, SOURCE_ASYNC, bctx->member[i].ctx->async_fd);
		if (!err && bctx->member[i].channel)
			err = watch_add(bctx, i, SOURCE_CQ, bctx->member[i].channel->fd);
	}
	if (err) {
		watch_del_all(bctx);
	} else {
		bctx->next = progress.contexts;
		progress.contexts = bctx;
	}
	pthread_mutex_unlock(&progress.lock);
	if (err)
		context_del(bctx);
	pthread_mutex_unlock(&progress.gate);
	return err;
}

void progress_del(struct bond_context *bctx)
{
	pthread_mutex_lock(&progress.gate);
	context_del(bctx);
	pthread_mutex_unlock(&progress.gate);
}

void progress_fork_child(void)
{
	/* No thread came along, and the descriptors are the parent's business. */
	progress.running = false;
	progress.contexts = NULL;
	progress.watches = NULL;
	progress.fired = NULL;
	pthread_mutex_init(&progress.gate, NULL);
	atomic_store(&progress.ticking, true);
	if (progress.wake_fd >= 0) {
		close(progress.wake_fd);
		close(progress.epoll_fd);
		progress.wake_fd = progress.epoll_fd = -1;
	}
}
