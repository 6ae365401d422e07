/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The control thread's event loop: descriptors, timers, waking it, and closing all descriptors in a
 * forked child. It knows nothing of messages. All functions are for the control thread itself
 * unless they say otherwise.
 */
#ifndef BOND_CTRL_LOOP_H
#define BOND_CTRL_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "ctrl_list.h"

#define LOOP_NS_PER_MS	UINT64_C(1000000)

/* One descriptor. fd is -1 while closed. */
struct loop_watch {
	struct ring node;
	int fd;
	uint32_t events;		/* EPOLL* waited for */
	void (*fn)(struct loop_watch *watch, uint32_t events);
};

/* A node of a pairing heap ordered by due_ns. */
struct loop_timer {
	struct loop_timer *child;
	struct loop_timer *next;	/* sibling */
	struct loop_timer *prev;	/* sibling, or the parent of a first child */
	uint64_t due_ns;
	bool armed;
	void (*fn)(struct loop_timer *timer);
};

/* Memory that a handler further up the stack may still look at: freed after the handlers. */
struct loop_grave {
	struct loop_grave *next;
};

struct loop {
	int epoll_fd;
	int timer_fd;
	int wake_fd;
	_Atomic(int) sleeping;		/* 1: someone must write wake_fd */
	/* Around opening and closing descriptors; fork() holds it: a child knows them all. */
	pthread_mutex_t fd_lock;
	struct ring watches;
	struct loop_timer *timers;
	uint64_t timer_set_ns;		/* what timer_fd is set to; 0: not set */
	struct loop_grave *graves;
};

uint64_t loop_now_ns(void);

int loop_open(struct loop *loop);
void loop_close(struct loop *loop);
/* In the child of a fork() that was done with fd_lock held: closes every descriptor. */
void loop_close_child(struct loop *loop);

/* Any thread: after having queued something that the loop's thread looks for. */
void loop_wake(struct loop *loop);

/*
 * Runs due timers, then waits for one descriptor and runs its handler. busy is asked after the loop
 * has said that it sleeps; true: do not wait.
 */
void loop_turn(struct loop *loop, bool (*busy)(void *arg), void *arg);

/*
 * A descriptor is opened like this, so that no fork() sees it unknown:
 *	loop_fd_begin(); fd = socket(...); err = loop_watch_open(watch, fd, ...); loop_fd_end();
 * loop_watch_open() closes fd where it fails. With fd -1 it returns the errno of opening it.
 */
void loop_fd_begin(struct loop *loop);
void loop_fd_end(struct loop *loop);
int loop_watch_open(struct loop *loop, struct loop_watch *watch, int fd, uint32_t events);
void loop_watch_events(struct loop *loop, struct loop_watch *watch, uint32_t events);
void loop_watch_close(struct loop *loop, struct loop_watch *watch);

void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t due_ns);
void loop_timer_in_ms(struct loop *loop, struct loop_timer *timer, uint64_t delay_ms);
void loop_timer_cancel(struct loop *loop, struct loop_timer *timer);

/* Frees the allocation that begins with grave when no handler can be using it any more. */
void loop_bury(struct loop *loop, struct loop_grave *grave);

#endif
