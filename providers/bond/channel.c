/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion events. The members' CQs report to private channels that the progress thread reads; it
 * takes the completions in and wakes the application where there is something that a poll would
 * return. For that the descriptor of the application's channel is made a pipe at its first CQ
 * (dup3, so that the number stays). It stays one when the last CQ goes, since a thread may be
 * waiting on it for the next; libibverbs does not say when the application destroys a channel, so
 * the writing end is closed once nobody can read.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "bond.h"
#include "channel_epoll.h"
#include "cq.h"
#include "evpipe.h"
#include "objects.h"
#include "progress.h"

struct bond_channel {
	struct bond_channel *next;
	struct ibv_comp_channel *channel;
	unsigned int cqs;
	int wr_fd;
	ino_t pipe_ino;
};

static int channel_open(struct bond_channel *bch)
{
	int fd = bch->channel->fd, flags, pipe_fd[2], err;
	struct epoll_seats *seats;
	struct stat st;

	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || pipe2(pipe_fd, O_CLOEXEC))
		return errno;
	fcntl(pipe_fd[1], F_SETFL, O_NONBLOCK);
	fcntl(pipe_fd[0], F_SETFL, flags & O_NONBLOCK);
	if (fstat(pipe_fd[0], &st)) {
		err = errno;
		goto err_close_pipe;
	}
	seats = epoll_leave(fd);
	err = dup3(pipe_fd[0], fd, O_CLOEXEC) < 0 ? errno : 0;
	epoll_return(seats, fd);
	if (err)
		goto err_close_pipe;
	close(pipe_fd[0]);
	bch->wr_fd = pipe_fd[1];
	bch->pipe_ino = st.st_ino;
	return 0;

err_close_pipe:
	close(pipe_fd[0]);
	close(pipe_fd[1]);
	return err;
}

/* A channel may have been destroyed and another made in its place. */
static bool channel_is(const struct bond_channel *bch, const struct ibv_comp_channel *channel)
{
	struct stat st;

	return bch->channel == channel &&
	       (bch->cqs || (!fstat(channel->fd, &st) && st.st_ino == bch->pipe_ino));
}

static bool channel_is_gone(const struct bond_channel *bch)
{
	struct pollfd pfd = { .fd = bch->wr_fd };

	return !bch->cqs && poll(&pfd, 1, 0) == 1 && pfd.revents & POLLERR;
}

/* Closes those that nobody can read any more; @all: every one. */
static void channels_sweep(struct bond_context *bctx, bool all)
{
	struct bond_channel **at = &bctx->channels, *bch;

	while ((bch = *at)) {
		if (!all && !channel_is_gone(bch)) {
			at = &bch->next;
			continue;
		}
		*at = bch->next;
		close(bch->wr_fd);
		free(bch);
	}
}

void bond_channels_close(struct bond_context *bctx)
{
	channels_sweep(bctx, true);
}

int bond_channel_get(struct bond_context *bctx, struct bond_cq *cq,
		     struct ibv_comp_channel *channel)
{
	struct bond_channel *bch;
	int err = 0;

	pthread_mutex_lock(&bctx->lock);
	channels_sweep(bctx, false);
	for (bch = bctx->channels; bch && !channel_is(bch, channel); bch = bch->next)
		;
	if (!bch) {
		bch = calloc(1, sizeof(*bch));
		if (!bch) {
			err = ENOMEM;
			goto out;
		}
		bch->channel = channel;
		err = channel_open(bch);
		if (err) {
			free(bch);
			goto out;
		}
		bch->next = bctx->channels;
		bctx->channels = bch;
	}
	bch->cqs++;
	cq->channel = bch;
out:
	pthread_mutex_unlock(&bctx->lock);
	return err;
}

void bond_channel_put(struct bond_context *bctx, struct bond_cq *cq)
{
	struct bond_channel *bch = cq->channel;

	pthread_mutex_lock(&bctx->lock);
	cq->events_delivered -= evpipe_purge(bch->channel->fd, bch->wr_fd,
					     sizeof(struct ib_uverbs_comp_event_desc),
					     (uintptr_t)&cq->vcq.cq);
	bch->cqs--;
	pthread_mutex_unlock(&bctx->lock);
}

/* Arms one member's CQ; a completion that came before that is found by looking again. */
static void mcq_arm(struct mcq *mcq, int solicited_only)
{
	mcq->armed = true;
	ibv_req_notify_cq(mcq->cq, solicited_only);
}

void bond_cq_arm_new(struct bond_cq *cq)
{
	unsigned int i;

	if (!cq->channel || !cq->armed)
		return;
	for (i = 1; i < cq_nmcqs(cq); i++)
		if (mcq_cq(&cq->mcq[i]) && !cq->mcq[i].armed)
			mcq_arm(&cq->mcq[i], 0);
}

int bond_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct bond_cq *cq = to_bond_cq(ibcq);
	int ret = 0;

	if (!cq->channel)
		return ibv_req_notify_cq(cq->mcq[0].cq, solicited_only);
	bond_lock(&cq->lock);
	/* Armed for all and then for solicited ones stays armed for all. */
	cq->armed_solicited = solicited_only && (!cq->armed || cq->armed_solicited);
	cq->armed = true;
	ret = ibv_req_notify_cq(cq->mcq[0].cq, cq->armed_solicited);
	bond_cq_arm_new(cq);
	bond_unlock(&cq->lock);
	/* Held work of a CQ that nobody polls has to be moved on. */
	progress_want();
	return ret;
}

static void cq_notify(struct bond_cq *cq)
{
	struct ib_uverbs_comp_event_desc event = { .cq_handle = (uintptr_t)&cq->vcq.cq };

	if (!cq->channel || !cq->armed || !bond_cq_visible(cq))
		return;
	cq->armed = false;
	if (!evpipe_write(cq->channel->wr_fd, &event, sizeof(event)))
		cq->events_delivered++;
}

/*
 * For solicited events alone the primary's CQ is the judge; a send completion that another member's
 * brought is none, but one in error is, and a message that was held.
 */
void bond_cq_notify_due(struct bond_cq *cq, bool primary)
{
	if (!cq->armed_solicited || primary || cq->urgent)
		cq_notify(cq);
}

void bond_cq_look(struct mcq *mcq)
{
	struct bond_cq *cq = mcq->owner;
	bool primary = mcq == &cq->mcq[0];

	mcq->armed = false;
	bond_cq_progress(cq);
	if (cq->armed) {
		if (!primary) {
			mcq_arm(mcq, 0);
			bond_cq_progress(cq);
		} else if (!bond_cq_visible(cq)) {
			ibv_req_notify_cq(mcq->cq, cq->armed_solicited);
			bond_cq_progress(cq);
		}
	}
	bond_cq_notify_due(cq, primary);
}
