/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Helpers of the fake NIC's tests, see pair.h.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>

#define PSN 0x123456
#define WAIT_S 2.0

double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

void fill(uint8_t *buf, size_t bytes, uint8_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		buf[i] = seed + i * 7 + (i >> 8);
}

struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	assert_non_null(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return ctx;
}

#define DEFAULT(field, value) \
	do { \
		if (!opt->field) \
			opt->field = value; \
	} while (0)

static void set_defaults(struct options *opt)
{
	DEFAULT(type, IBV_QPT_RC);
	DEFAULT(send_wr, 64);
	DEFAULT(recv_wr, 64);
	DEFAULT(cqe, 256);
	DEFAULT(num_sge, 4);
	DEFAULT(inline_bytes, 64);
	DEFAULT(mr_access, ALL_ACCESS);
	DEFAULT(qp_access, ALL_ACCESS);
	DEFAULT(timeout, 8);
	DEFAULT(retry_cnt, 3);
	DEFAULT(min_rnr_timer, 1);
	DEFAULT(mtu, IBV_MTU_4096);
	if (opt->mr_access < 0)
		opt->mr_access = 0;
	if (opt->qp_access < 0)
		opt->qp_access = 0;
}

static struct ibv_cq *make_cq(struct end *e)
{
	struct ibv_cq_init_attr_ex ex = { .cqe = e->opt.cqe,
					  .channel = e->channel,
					  .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *cq;

	if (!e->opt.extended)
		return ibv_create_cq(e->ctx, e->opt.cqe, e, e->channel, 0);
	cq = ibv_create_cq_ex(e->ctx, &ex);
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static void make_qp(struct end *e)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = e->scq,
		.recv_cq = e->rcq,
		.srq = e->srq,
		.cap = { .max_send_wr = e->opt.send_wr,
			 .max_recv_wr = e->opt.recv_wr,
			 .max_send_sge = e->opt.num_sge,
			 .max_recv_sge = e->opt.num_sge,
			 .max_inline_data = e->opt.inline_bytes },
		.qp_type = e->opt.type,
		.sq_sig_all = e->opt.sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = e->pd,
	};

	if (e->opt.extended) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
		if (e->opt.type == IBV_QPT_RC)
			attr.send_ops_flags |=
				IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
				IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
				IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	}
	e->qp = ibv_create_qp_ex(e->ctx, &attr);
	assert_non_null(e->qp);
}

void end_open(struct end *e, const char *device, const struct options *opt)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 64, .max_sge = 4 } };

	memset(e, 0, sizeof(*e));
	if (opt)
		e->opt = *opt;
	set_defaults(&e->opt);
	e->ctx = open_named(device);
	assert_non_null(e->ctx);
	assert_int_equal(ibv_query_gid(e->ctx, 1, 1, &e->gid), 0);
	e->pd = ibv_alloc_pd(e->ctx);
	assert_non_null(e->pd);
	if (e->opt.channel) {
		e->channel = ibv_create_comp_channel(e->ctx);
		assert_non_null(e->channel);
	}
	e->scq = make_cq(e);
	e->rcq = make_cq(e);
	assert_non_null(e->scq);
	assert_non_null(e->rcq);
	if (e->opt.srq) {
		e->srq = ibv_create_srq(e->pd, &srq);
		assert_non_null(e->srq);
	}
	make_qp(e);
	e->buf = aligned_alloc(4096, BUF_BYTES);
	assert_non_null(e->buf);
	memset(e->buf, 0, BUF_BYTES);
	e->mr = ibv_reg_mr(e->pd, e->buf, BUF_BYTES, e->opt.mr_access);
	assert_non_null(e->mr);
}

static int to_init(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qkey = 0x1234,
				    .qp_access_flags = e->opt.qp_access };
	int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX;

	mask |= e->opt.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(e->qp, &attr, mask);
}

static int to_rtr(struct end *e, const union ibv_gid *gid, uint32_t qpn)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = e->opt.mtu,
				    .dest_qp_num = qpn,
				    .rq_psn = PSN,
				    .max_dest_rd_atomic = 16,
				    .min_rnr_timer = e->opt.min_rnr_timer,
				    .ah_attr = { .is_global = 1,
						 .port_num = 1,
						 .grh = { .dgid = *gid,
							  .sgid_index = 1,
							  .hop_limit = 64 } } };
	int mask = IBV_QP_STATE;

	if (e->opt.type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (e->opt.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(e->qp, &attr, mask);
}

static int to_rts(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = PSN,
				    .timeout = e->opt.timeout,
				    .retry_cnt = e->opt.retry_cnt,
				    .rnr_retry = e->opt.rnr_retry,
				    .max_rd_atomic = 16 };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (e->opt.type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(e->qp, &attr, mask);
}

void end_connect(struct end *e, const union ibv_gid *gid, uint32_t qpn)
{
	assert_int_equal(to_init(e), 0);
	assert_int_equal(to_rtr(e, gid, qpn), 0);
	assert_int_equal(to_rts(e), 0);
}

void end_close(struct end *e)
{
	if (e->qp)
		assert_int_equal(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	assert_int_equal(ibv_destroy_cq(e->scq), 0);
	assert_int_equal(ibv_destroy_cq(e->rcq), 0);
	if (e->channel)
		assert_int_equal(ibv_destroy_comp_channel(e->channel), 0);
	if (e->mr)
		assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
	free(e->buf);
}

void pair_open(struct pair *p, const struct options *opt)
{
	end_open(&p->a, "a0", opt);
	end_open(&p->b, "b0", opt);
	if (p->a.opt.unconnected)
		return;
	end_connect(&p->a, &p->b.gid, p->b.qp->qp_num);
	end_connect(&p->b, &p->a.gid, p->a.qp->qp_num);
}

void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

int modify_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

struct wr *wr_make(struct wr *w, struct end *e, struct end *to, enum ibv_wr_opcode opcode,
		   uint32_t offset, uint32_t length)
{
	memset(w, 0, sizeof(*w));
	w->sge.addr = (uintptr_t)e->buf + offset;
	w->sge.length = length;
	w->sge.lkey = e->mr->lkey;
	w->wr.sg_list = &w->sge;
	w->wr.num_sge = 1;
	w->wr.opcode = opcode;
	w->wr.send_flags = IBV_SEND_SIGNALED;
	if (!to)
		return w;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w->wr.wr.atomic.remote_addr = (uintptr_t)to->buf + offset;
		w->wr.wr.atomic.rkey = to->mr->rkey;
	} else {
		w->wr.wr.rdma.remote_addr = (uintptr_t)to->buf + offset;
		w->wr.wr.rdma.rkey = to->mr->rkey;
	}
	return w;
}

int wr_post(struct end *e, struct wr *w)
{
	struct ibv_send_wr *bad = NULL;
	int ret = ibv_post_send(e->qp, &w->wr, &bad);

	if (ret)
		assert_ptr_equal(bad, &w->wr);
	return ret;
}

void post(struct end *e, struct end *to, enum ibv_wr_opcode opcode, uint32_t offset,
	  uint32_t length, uint64_t wr_id)
{
	struct wr w;

	wr_make(&w, e, to, opcode, offset, length);
	w.wr.wr_id = wr_id;
	assert_int_equal(wr_post(e, &w), 0);
}

void post_recv(struct end *e, uint32_t offset, uint32_t length, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + offset, length, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (e->srq)
		assert_int_equal(ibv_post_srq_recv(e->srq, &wr, &bad), 0);
	else
		assert_int_equal(ibv_post_recv(e->qp, &wr, &bad), 0);
}

struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	double until = now_s() + WAIT_S;
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (!n && now_s() < until);
	if (n != 1)
		fail_msg("no completion within %g s", WAIT_S);
	return wc;
}

void expect_wc(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_wc(cq);

	if (wc.wr_id != wr_id || wc.status != status)
		fail_msg("completion of %llu with %s instead of %llu with %s",
			 (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
			 (unsigned long long)wr_id, ibv_wc_status_str(status));
}

void expect_none(struct ibv_cq *cq, int ms)
{
	double until = now_s() + ms * 1e-3;
	struct ibv_wc wc;

	do
		assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
	while (now_s() < until);
}

bool has_event(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

struct ibv_async_event wait_event(struct ibv_context *ctx)
{
	struct ibv_async_event event;

	if (!has_event(ctx->async_fd, WAIT_S * 1000))
		fail_msg("no event within %g s", WAIT_S);
	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	ibv_ack_async_event(&event);
	return event;
}
