/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The event loop: epoll, one timerfd fed by a pairing heap, one eventfd to wake it. Declared and
 * explained in ctrl_loop.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "ctrl_loop.h"

uint64_t loop_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int own_fd_watch(struct loop *loop, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	/* data.ptr NULL: one of the loop's own two, which are only emptied. */
	event.data.ptr = NULL;
	return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? errno : 0;
}

int loop_open(struct loop *loop)
{
	int err;

	loop->timers = NULL;
	loop->timer_set_ns = 0;
	loop->graves = NULL;
	atomic_init(&loop->sleeping, 0);
	ring_init(&loop->watches);
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	loop->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = errno;
	if (loop->epoll_fd < 0 || loop->timer_fd < 0 || loop->wake_fd < 0)
		goto err_close;
	err = own_fd_watch(loop, loop->timer_fd);
	if (!err)
		err = own_fd_watch(loop, loop->wake_fd);
	if (!err)
		err = pthread_mutex_init(&loop->fd_lock, NULL);
	if (!err)
		return 0;
err_close:
	loop_close_child(loop);
	return err;
}

static void graves_free(struct loop *loop)
{
	struct loop_grave *grave;

	while ((grave = loop->graves)) {
		loop->graves = grave->next;
		free(grave);
	}
}

void loop_close(struct loop *loop)
{
	graves_free(loop);
	loop_close_child(loop);
	pthread_mutex_destroy(&loop->fd_lock);
}

static void close_open(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void loop_close_child(struct loop *loop)
{
	struct ring *node, *after;

	ring_for_each(node, after, &loop->watches)
		close_open(&ring_entry(node, struct loop_watch, node)->fd);
	close_open(&loop->epoll_fd);
	close_open(&loop->timer_fd);
	close_open(&loop->wake_fd);
}

void loop_wake(struct loop *loop)
{
	uint64_t one = 1;
	ssize_t ret;

	/*
	 * Sequentially consistent, as the caller's queueing was: either we see sleeping, or the
	 * loop's thread sees what was queued when it asks busy().
	 */
	if (!atomic_load(&loop->sleeping) || !atomic_exchange(&loop->sleeping, 0))
		return;
	ret = write(loop->wake_fd, &one, sizeof(one));
	(void)ret;	/* EAGAIN: it is awake already */
}

static void timer_fd_set(struct loop *loop)
{
	uint64_t due_ns = loop->timers ? loop->timers->due_ns : 0;
	struct itimerspec when = { 0 };

	if (due_ns == loop->timer_set_ns)
		return;
	when.it_value.tv_sec = (time_t)(due_ns / 1000000000u);
	when.it_value.tv_nsec = (long)(due_ns % 1000000000u);
	timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
	loop->timer_set_ns = due_ns;
}

static void timers_run(struct loop *loop)
{
	uint64_t now_ns = loop_now_ns();

	while (loop->timers && loop->timers->due_ns <= now_ns) {
		struct loop_timer *timer = loop->timers;

		loop_timer_cancel(loop, timer);
		timer->fn(timer);
		graves_free(loop);
	}
}

static void own_fds_empty(struct loop *loop)
{
	uint64_t count;

	if (read(loop->timer_fd, &count, sizeof(count)) == sizeof(count))
		loop->timer_set_ns = 0;
	while (read(loop->wake_fd, &count, sizeof(count)) == sizeof(count))
		;
}

void loop_turn(struct loop *loop, bool (*busy)(void *arg), void *arg)
{
	struct epoll_event event;
	struct loop_watch *watch;
	int n;

	timers_run(loop);
	timer_fd_set(loop);
	atomic_store(&loop->sleeping, 1);
	/* One event at a time: a handler may close any other watch, and none is left in hand. */
	n = epoll_wait(loop->epoll_fd, &event, 1, busy(arg) ? 0 : -1);
	atomic_store(&loop->sleeping, 0);
	if (n != 1)
		return;
	watch = event.data.ptr;
	if (watch)
		watch->fn(watch, event.events);
	else
		own_fds_empty(loop);
	graves_free(loop);
}

void loop_fd_begin(struct loop *loop)
{
	pthread_mutex_lock(&loop->fd_lock);
}

void loop_fd_end(struct loop *loop)
{
	pthread_mutex_unlock(&loop->fd_lock);
}

int loop_watch_open(struct loop *loop, struct loop_watch *watch, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events };
	int err = errno;

	event.data.ptr = watch;
	watch->fd = -1;
	if (fd < 0)
		return err;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		err = errno;
		close(fd);
		return err;
	}
	watch->fd = fd;
	watch->events = events;
	ring_append(&loop->watches, &watch->node);
	return 0;
}

void loop_watch_events(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
	struct epoll_event event = { .events = events };

	event.data.ptr = watch;
	if (watch->fd < 0 || watch->events == events)
		return;
	watch->events = events;
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event);
}

void loop_watch_close(struct loop *loop, struct loop_watch *watch)
{
	if (watch->fd < 0)
		return;
	loop_fd_begin(loop);
	/* A copy in a child that did not tell us of its fork would keep it in the epoll set. */
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
	ring_remove(&watch->node);
	close(watch->fd);
	watch->fd = -1;
	loop_fd_end(loop);
}

static struct loop_timer *heap_meld(struct loop_timer *a, struct loop_timer *b)
{
	struct loop_timer *low = a, *high = b;

	if (!a)
		return b;
	if (!b)
		return a;
	if (b->due_ns < a->due_ns) {
		low = b;
		high = a;
	}
	high->next = low->child;
	high->prev = low;
	if (low->child)
		low->child->prev = high;
	low->child = high;
	low->next = NULL;
	low->prev = NULL;
	return low;
}

/* Melds the siblings pairwise, then the pairs from the last to the first; without recursion. */
static struct loop_timer *heap_meld_siblings(struct loop_timer *first)
{
	struct loop_timer *pairs = NULL, *root = NULL;

	while (first) {
		struct loop_timer *a = first, *b = a->next, *pair;

		first = b ? b->next : NULL;
		pair = heap_meld(a, b);
		pair->next = pairs;
		pairs = pair;
	}
	while (pairs) {
		struct loop_timer *next = pairs->next;

		pairs->next = NULL;
		pairs->prev = NULL;
		root = heap_meld(root, pairs);
		pairs = next;
	}
	return root;
}

void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t due_ns)
{
	loop_timer_cancel(loop, timer);
	timer->child = NULL;
	timer->next = NULL;
	timer->prev = NULL;
	timer->due_ns = due_ns;
	timer->armed = true;
	loop->timers = heap_meld(loop->timers, timer);
}

void loop_timer_in_ms(struct loop *loop, struct loop_timer *timer, uint64_t delay_ms)
{
	loop_timer_set(loop, timer, loop_now_ns() + delay_ms * LOOP_NS_PER_MS);
}

void loop_timer_cancel(struct loop *loop, struct loop_timer *timer)
{
	struct loop_timer *rest;

	if (!timer->armed)
		return;
	timer->armed = false;
	rest = heap_meld_siblings(timer->child);
	if (loop->timers == timer) {
		loop->timers = rest;
		return;
	}
	if (timer->next)
		timer->next->prev = timer->prev;
	if (timer->prev->child == timer)
		timer->prev->child = timer->next;
	else
		timer->prev->next = timer->next;
	loop->timers = heap_meld(loop->timers, rest);
}

void loop_bury(struct loop *loop, struct loop_grave *grave)
{
	grave->next = loop->graves;
	loop->graves = grave;
}
