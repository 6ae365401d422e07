/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * An open bond0. Its identity is the primary's: cmd_fd is a duplicate of the primary context's and
 * its driver id the primary's, because libibverbs asks the kernel with them for GIDs, pkeys and
 * completion channels without asking us. async_fd is a pipe that event.c feeds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "device.h"
#include "glue.h"
#include "log.h"
#include "member.h"
#include "objects.h"
#include "peer.h"
#include "progress.h"

static void bond_free_context(struct ibv_context *ctx)
{
	struct bond_context *bctx = to_bond_context(ctx);

	progress_del(bctx);
	bond_peer_context_close(bctx);
	bond_channels_close(bctx);
	close(bctx->async_pipe_wr);
	members_close(bctx);
	pthread_mutex_destroy(&bctx->lock);
	verbs_uninit_context(&bctx->vctx);
	free(bctx);
}

static const struct verbs_context_ops bond_ops = {
	.advise_mr = bond_advise_mr,
	.alloc_mw = bond_alloc_mw,
	.alloc_null_mr = bond_alloc_null_mr,
	.alloc_parent_domain = bond_alloc_parent_domain,
	.alloc_pd = bond_alloc_pd,
	.alloc_td = bond_alloc_td,
	.attach_mcast = bond_attach_mcast,
	.bind_mw = bond_bind_mw,
	.close_xrcd = bond_close_xrcd,
	.create_ah = bond_create_ah,
	.create_cq = bond_create_cq,
	.create_cq_ex = bond_create_cq_ex,
	.create_qp = bond_create_qp,
	.create_qp_ex = bond_create_qp_ex,
	.create_srq = bond_create_srq,
	.create_srq_ex = bond_create_srq_ex,
	.dealloc_mw = bond_dealloc_mw,
	.dealloc_pd = bond_dealloc_pd,
	.dealloc_td = bond_dealloc_td,
	.dereg_mr = bond_dereg_mr,
	.destroy_ah = bond_destroy_ah,
	.destroy_cq = bond_destroy_cq,
	.destroy_qp = bond_destroy_qp,
	.destroy_srq = bond_destroy_srq,
	.detach_mcast = bond_detach_mcast,
	.free_context = bond_free_context,
	.get_srq_num = bond_get_srq_num,
	.modify_cq = bond_modify_cq,
	.modify_qp = bond_modify_qp,
	.modify_qp_rate_limit = bond_modify_qp_rate_limit,
	.modify_srq = bond_modify_srq,
	.open_xrcd = bond_open_xrcd,
	.poll_cq = bond_poll_cq,
	.post_recv = bond_post_recv,
	.post_send = bond_post_send,
	.post_srq_recv = bond_post_srq_recv,
	.query_device_ex = bond_query_device_ex,
	.query_ece = bond_query_ece,
	.query_port = bond_query_port,
	.query_qp = bond_query_qp,
	.query_qp_data_in_order = bond_query_qp_data_in_order,
	.query_rt_values = bond_query_rt_values,
	.query_srq = bond_query_srq,
	.reg_dmabuf_mr = bond_reg_dmabuf_mr,
	.reg_mr = bond_reg_mr,
	.req_notify_cq = bond_req_notify_cq,
	.rereg_mr = bond_rereg_mr,
	.resize_cq = bond_resize_cq,
	.set_ece = bond_set_ece,
};

static int context_pipe(struct bond_context *bctx)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC))
		return errno;
	fcntl(fd[1], F_SETFL, O_NONBLOCK);
	bctx->vctx.context.async_fd = fd[0];
	bctx->async_pipe_wr = fd[1];
	return 0;
}

/* The bond's context, once the primary is open: it needs the primary's descriptor and id. */
static struct bond_context *context_alloc(struct ibv_device *dev, struct ibv_context *primary)
{
	uint32_t driver_id = glue_context_driver_id(primary);
	struct bond_context *bctx;
	int fd = fcntl(primary->cmd_fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return NULL;
	bctx = verbs_alloc_context(dev, fd, struct bond_context, vctx, driver_id);
	if (!bctx)
		return NULL;
	verbs_set_ops(&bctx->vctx, &bond_ops);
	if (!glue_context_check(&bctx->vctx.context, &bond_ops, driver_id)) {
		bond_warn("%s: cannot be opened: this libibverbs keeps its contexts otherwise than the one "
			  "that rdma-bond was built for; build it against this one", dev->name);
		verbs_uninit_context(&bctx->vctx);
		free(bctx);
		errno = ENOTSUP;
		return NULL;
	}
	pthread_mutex_init(&bctx->lock, NULL);
	bctx->vctx.context.num_comp_vectors = primary->num_comp_vectors;
	/* libibverbs drops optional access flags where the device says that the kernel knows none. */
	to_verbs_device(dev)->core_support = to_verbs_device(primary->device)->core_support;
	return bctx;
}

struct verbs_context *bond_alloc_context(struct ibv_device *dev, int cmd_fd, void *private_data)
{
	struct bond_device *bdev = to_bond_device(dev);
	struct bond_context opening = { .cfg = bdev->cfg }, *bctx;
	int err;

	(void)private_data;
	close(cmd_fd);
	err = members_open(&opening, bdev);
	if (err)
		goto err_out;
	bctx = context_alloc(dev, opening.member[0].ctx);
	if (!bctx) {
		err = errno;
		goto err_close_members;
	}
	bctx->cfg = bdev->cfg;
	bctx->member = opening.member;
	bctx->nmembers = opening.nmembers;
	err = context_pipe(bctx);
	if (err)
		goto err_uninit;
	err = bond_peer_context_open(bctx);
	if (err)
		goto err_close_pipe;
	err = progress_add(bctx);
	if (err)
		goto err_close_peer;
	return &bctx->vctx;

err_close_peer:
	bond_peer_context_close(bctx);
err_close_pipe:
	close(bctx->async_pipe_wr);
err_uninit:
	verbs_uninit_context(&bctx->vctx);
	free(bctx);
err_close_members:
	members_close(&opening);
err_out:
	errno = err;
	return NULL;
}
