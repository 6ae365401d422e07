/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion events. The members' CQs report to private channels that the progress thread reads; it
 * takes the completions in and wakes the application where there is something that a poll would
 * return. For that the descriptor of the application's channel is made a pipe at its first CQ
 * (dup2, so that the number stays), and given back at the last.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "bond.h"
#include "channel_epoll.h"
#include "evpipe.h"
#include "objects.h"
#include "progress.h"

struct bond_channel {
	struct bond_channel *next;
	struct ibv_comp_channel *channel;
	unsigned int cqs;
	int saved_fd;			/* what the kernel made */
	int wr_fd;
};

static int channel_open(struct bond_channel *bch)
{
	int fd = bch->channel->fd, flags, pipe_fd[2], err;
	struct epoll_seats *seats;

	flags = fcntl(fd, F_GETFL);
	bch->saved_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (flags < 0 || bch->saved_fd < 0)
		return errno;
	if (pipe2(pipe_fd, O_CLOEXEC)) {
		err = errno;
		goto err_close_saved;
	}
	fcntl(pipe_fd[1], F_SETFL, O_NONBLOCK);
	seats = epoll_leave(fd);
	err = dup3(pipe_fd[0], fd, O_CLOEXEC) < 0 ? errno : 0;
	epoll_return(seats, fd);
	if (err)
		goto err_close_pipe;
	fcntl(fd, F_SETFL, flags & O_NONBLOCK);
	close(pipe_fd[0]);
	bch->wr_fd = pipe_fd[1];
	return 0;

err_close_pipe:
	close(pipe_fd[0]);
	close(pipe_fd[1]);
err_close_saved:
	close(bch->saved_fd);
	return err;
}

static void channel_close(struct bond_channel *bch)
{
	int flags = fcntl(bch->channel->fd, F_GETFL);
	struct epoll_seats *seats = epoll_leave(bch->channel->fd);

	dup3(bch->saved_fd, bch->channel->fd, O_CLOEXEC);
	epoll_return(seats, bch->channel->fd);
	if (flags >= 0)
		fcntl(bch->channel->fd, F_SETFL, flags & O_NONBLOCK);
	close(bch->saved_fd);
	close(bch->wr_fd);
}

int bond_channel_get(struct bond_context *bctx, struct bond_cq *cq,
		     struct ibv_comp_channel *channel)
{
	struct bond_channel *bch;
	int err = 0;

	pthread_mutex_lock(&bctx->lock);
	for (bch = bctx->channels; bch && bch->channel != channel; bch = bch->next)
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
	struct bond_channel *bch = cq->channel, **at;

	pthread_mutex_lock(&bctx->lock);
	evpipe_purge(bch->channel->fd, bch->wr_fd, sizeof(struct ib_uverbs_comp_event_desc),
		     (uintptr_t)&cq->vcq.cq);
	if (!--bch->cqs) {
		for (at = &bctx->channels; *at != bch; at = &(*at)->next)
			;
		*at = bch->next;
		channel_close(bch);
		free(bch);
	}
	pthread_mutex_unlock(&bctx->lock);
}

/* Arms one member's CQ; a completion that came before that is found by looking again. */
static void mcq_arm(struct mcq *mcq, int solicited_only)
{
	mcq->armed = true;
	ibv_req_notify_cq(mcq->cq, solicited_only);
}

int bond_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct bond_cq *cq = to_bond_cq(ibcq);
	unsigned int i;
	int ret = 0;

	if (!cq->channel)
		return ibv_req_notify_cq(cq->mcq[0].cq, solicited_only);
	bond_lock(&cq->lock);
	/* Armed for all and then for solicited ones stays armed for all. */
	cq->armed_solicited = solicited_only && (!cq->armed || cq->armed_solicited);
	cq->armed = true;
	ret = ibv_req_notify_cq(cq->mcq[0].cq, cq->armed_solicited);
	for (i = 1; i < cq->nmcqs; i++)
		if (cq->mcq[i].cq && !cq->mcq[i].armed)
			mcq_arm(&cq->mcq[i], 0);
	bond_unlock(&cq->lock);
	/* Held work of a CQ that nobody polls has to be moved on. */
	progress_want();
	return ret;
}

void bond_cq_event(struct ibv_cq *cq)
{
	to_bond_cq(cq)->events_delivered++;
}

void bond_cq_notify(struct bond_cq *cq)
{
	struct ib_uverbs_comp_event_desc event = { .cq_handle = (uintptr_t)&cq->vcq.cq };

	if (!cq->channel || !cq->armed || !bond_cq_visible(cq))
		return;
	cq->armed = false;
	evpipe_write(cq->channel->wr_fd, &event, sizeof(event));
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
	/*
	 * For solicited events alone the primary's CQ is the judge; a send completion that another
	 * member's brought is none.
	 */
	if (!cq->armed_solicited || primary)
		bond_cq_notify(cq);
}
