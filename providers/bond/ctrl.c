/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The control channel's thread, what the QP layer calls (ctrl.h), and the rules of callbacks. What
 * the thread then does: see the list in ctrl_priv.h.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctrl_priv.h"

#define HEARTBEAT_MS	2000
#define GREET_MS	5000

void ctrl_log(struct ctrl *ctrl, enum ctrl_log_level level, const char *fmt, ...)
{
	char line[256];
	va_list args;

	if (!ctrl->ops->log)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	ctrl->ops->log(ctrl->log_arg, level, line);
}

bool ctrl_callback_begin(struct ctrl_qp *qp)
{
	struct ctrl *ctrl = qp->ctrl;
	bool up;

	pthread_mutex_lock(&ctrl->lock);
	up = !qp->silenced;
	if (up)
		ctrl->running = qp;
	pthread_mutex_unlock(&ctrl->lock);
	return up;
}

void ctrl_callback_end(struct ctrl_qp *qp)
{
	struct ctrl *ctrl = qp->ctrl;

	pthread_mutex_lock(&ctrl->lock);
	ctrl->running = NULL;
	pthread_cond_broadcast(&ctrl->callback_end);
	pthread_mutex_unlock(&ctrl->lock);
}

/* The newest: after a RESET the old one may not be out of the table yet. */
struct ctrl_qp *ctrl_qp_find(struct ctrl *ctrl, const uint8_t gid[16], uint32_t qpn)
{
	struct qp_name *name = qp_names_find(&ctrl->qps, gid, qpn, NULL);

	return name ? ring_entry(name, struct ctrl_qp, name) : NULL;
}

void ctrl_commanded(struct ctrl *ctrl)
{
	atomic_store(&ctrl->commanded, true);
	loop_wake(&ctrl->loop);
}

/* With ctrl->lock held. */
static void command_queue(struct ctrl_qp *qp)
{
	if (ring_empty(&qp->command))
		ring_append(&qp->ctrl->commands, &qp->command);
}

struct ctrl_qp *ctrl_qp_up(struct ctrl *ctrl, const struct ctrl_qp_info *info, void *cookie)
{
	struct ctrl_qp *qp;

	if (atomic_load(&ctrl->child)) {
		errno = ENODEV;
		return NULL;
	}
	if (!info->generation || info->desc.nmembers > WIRE_MAX_MEMBERS) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->ctrl = ctrl;
	qp->cookie = cookie;
	qp->info = *info;
	qp->info.desc.npaths = 0;
	qp->want_up = true;
	ring_init(&qp->command);
	ring_init(&qp->name.bucket);
	ring_init(&qp->host_node);
	ring_init(&qp->session_node);
	pthread_mutex_lock(&ctrl->lock);
	command_queue(qp);
	pthread_mutex_unlock(&ctrl->lock);
	ctrl_commanded(ctrl);
	return qp;
}

void ctrl_qp_down(struct ctrl_qp *qp)
{
	struct ctrl *ctrl = qp->ctrl;

	if (atomic_load(&ctrl->child))
		return;
	pthread_mutex_lock(&ctrl->lock);
	qp->silenced = true;
	while (ctrl->running == qp)
		pthread_cond_wait(&ctrl->callback_end, &ctrl->lock);
	/* Not before: the thread frees it when it sees this. */
	qp->want_down = true;
	command_queue(qp);
	pthread_mutex_unlock(&ctrl->lock);
	ctrl_commanded(ctrl);
}

void ctrl_qp_error(struct ctrl_qp *qp, uint32_t reason)
{
	struct ctrl *ctrl = qp->ctrl;

	if (atomic_load(&ctrl->child))
		return;
	pthread_mutex_lock(&ctrl->lock);
	qp->want_error = true;
	qp->error_reason = reason;
	command_queue(qp);
	pthread_mutex_unlock(&ctrl->lock);
	ctrl_commanded(ctrl);
}

static void qp_up(struct ctrl_qp *qp)
{
	struct ctrl *ctrl = qp->ctrl;
	int err;

	qp_names_add(&ctrl->qps, &qp->name, qp->info.gid, qp->info.qpn);
	qp->entry = registrar_add(ctrl->registrar, qp->info.gid, qp->info.qpn);
	err = seek_start(qp);
	if (err)
		ctrl_log(ctrl, CTRL_LOG_DEBUG, "control: QP %u stays on path 0: %s", qp->info.qpn,
			 strerror(err));
	else if (pair_with_self(qp))
		pair_self_up(qp);
}

static void qp_free(struct ctrl_qp *qp)
{
	/* It may be on the stack of those with keys to ask. */
	key_asks_drain(qp->ctrl);
	pair_down(qp);
	key_asks_drop(qp);
	seek_stop(qp);
	if (qp->entry)
		registrar_remove(qp->ctrl->registrar, qp->entry);
	ring_remove(&qp->name.bucket);
	free(qp);
}

static struct ctrl_qp *command_take(struct ctrl *ctrl, struct ctrl_qp *what)
{
	struct ctrl_qp *qp = NULL;

	pthread_mutex_lock(&ctrl->lock);
	if (!ring_empty(&ctrl->commands)) {
		qp = ring_entry(ctrl->commands.next, struct ctrl_qp, command);
		ring_remove(&qp->command);
		what->want_up = qp->want_up;
		what->want_error = qp->want_error;
		what->error_reason = qp->error_reason;
		what->want_down = qp->want_down;
		qp->want_up = false;
		qp->want_error = false;
	}
	pthread_mutex_unlock(&ctrl->lock);
	return qp;
}

static void commands_run(struct ctrl *ctrl)
{
	struct ctrl_qp *qp, what;

	if (!atomic_exchange(&ctrl->commanded, false))
		return;
	while ((qp = command_take(ctrl, &what))) {
		if (what.want_up && !what.want_down)
			qp_up(qp);
		if (what.want_error && !what.want_down)
			pair_error(qp, what.error_reason);
		if (what.want_down)
			qp_free(qp);
	}
	key_withdrawals_send(ctrl);
}

static bool thread_busy(void *arg)
{
	struct ctrl *ctrl = arg;

	return atomic_load(&ctrl->commanded) || atomic_load(&ctrl->asking);
}

static void *thread_main(void *arg)
{
	struct ctrl *ctrl = arg;
	bool stop = false;

	while (!stop) {
		loop_turn(&ctrl->loop, thread_busy, ctrl);
		/* Before the last commands: what is queued until ctrl_destroy() is still done. */
		pthread_mutex_lock(&ctrl->lock);
		stop = ctrl->stop;
		pthread_mutex_unlock(&ctrl->lock);
		commands_run(ctrl);
		key_asks_drain(ctrl);
	}
	return NULL;
}

/* The application's signals are not for us. */
static int thread_start(struct ctrl *ctrl)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&ctrl->thread, NULL, thread_main, ctrl);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_setname_np(ctrl->thread, "bond-control");
	return err;
}

static bool registrar_owns(void *arg, const uint8_t gid[16], uint32_t qpn)
{
	return ctrl_qp_find(arg, gid, qpn);
}

static void registrar_connection(void *arg, struct conn *conn, const struct wire_hello *hello,
				 const uint8_t *raw, size_t len)
{
	greet_accept(arg, conn, hello, raw, len);
}

static void registrar_warning(void *arg, const char *line)
{
	ctrl_log(arg, CTRL_LOG_WARN, "control: %s", line);
}

static const struct registrar_ops registrar_ops = {
	.owns = registrar_owns,
	.connection = registrar_connection,
	.warn = registrar_warning,
};

static int registrar_start(struct ctrl *ctrl)
{
	struct registrar_config config = {
		.loop = &ctrl->loop,
		.port = ctrl->port,
		.greet_ms = ctrl->greet_ms,
		.ops = &registrar_ops,
		.arg = ctrl,
	};

	ctrl->registrar = registrar_create(&config);
	return ctrl->registrar ? 0 : errno;
}

static struct ctrl *ctrl_new(const struct ctrl_config *config)
{
	struct ctrl *ctrl = calloc(1, sizeof(*ctrl));

	if (!ctrl)
		return NULL;
	ctrl->ops = config->ops;
	ctrl->log_arg = config->log_arg;
	ctrl->port = config->port;
	ctrl->heartbeat_ms = config->heartbeat_ms ? config->heartbeat_ms : HEARTBEAT_MS;
	ctrl->greet_ms = config->greet_ms ? config->greet_ms : GREET_MS;
	ctrl->has_key = config->key;
	if (config->key)
		ctrl->key = *config->key;
	ring_init(&ctrl->commands);
	ring_init(&ctrl->hosts);
	ring_init(&ctrl->sessions);
	ring_init(&ctrl->greets);
	qp_names_init(&ctrl->qps);
	pthread_mutex_init(&ctrl->lock, NULL);
	pthread_cond_init(&ctrl->callback_end, NULL);
	key_book_init(&ctrl->book);
	return ctrl;
}

static void ctrl_free(struct ctrl *ctrl)
{
	pthread_mutex_destroy(&ctrl->book.lock);
	pthread_cond_destroy(&ctrl->callback_end);
	pthread_mutex_destroy(&ctrl->lock);
	auth_key_wipe(&ctrl->key);
	free(ctrl);
}

struct ctrl *ctrl_create(const struct ctrl_config *config)
{
	struct ctrl *ctrl = ctrl_new(config);
	int err;

	if (!ctrl)
		return NULL;
	/* 0 stands for no process. */
	do
		err = auth_random(&ctrl->nonce, sizeof(ctrl->nonce));
	while (!err && !ctrl->nonce);
	if (err)
		goto err_free;
	err = loop_open(&ctrl->loop);
	if (err)
		goto err_free;
	err = registrar_start(ctrl);
	if (err)
		goto err_close_loop;
	err = thread_start(ctrl);
	if (err)
		goto err_destroy_registrar;
	return ctrl;

err_destroy_registrar:
	registrar_destroy(ctrl->registrar);
err_close_loop:
	loop_close(&ctrl->loop);
err_free:
	ctrl_free(ctrl);
	errno = err;
	return NULL;
}

void ctrl_destroy(struct ctrl *ctrl)
{
	struct ring *node, *after;

	if (atomic_load(&ctrl->child))
		return;
	pthread_mutex_lock(&ctrl->lock);
	ctrl->stop = true;
	pthread_mutex_unlock(&ctrl->lock);
	ctrl_commanded(ctrl);
	pthread_join(ctrl->thread, NULL);
	greet_close_all(ctrl);
	for (int i = 0; i < QP_NAME_BUCKETS; i++)
		ring_for_each(node, after, &ctrl->qps.buckets[i])
			qp_free(ring_entry(node, struct ctrl_qp, name.bucket));
	session_close_all(ctrl);
	registrar_destroy(ctrl->registrar);
	loop_close(&ctrl->loop);
	ctrl_free(ctrl);
}

void ctrl_fork_prepare(struct ctrl *ctrl)
{
	loop_fd_begin(&ctrl->loop);
}

void ctrl_fork_parent(struct ctrl *ctrl)
{
	loop_fd_end(&ctrl->loop);
}

void ctrl_fork_child(struct ctrl *ctrl)
{
	/* No other thread is here to see it; locks stay as they were at the fork. */
	atomic_store(&ctrl->child, true);
	loop_close_child(&ctrl->loop);
}
