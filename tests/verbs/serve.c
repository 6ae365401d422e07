/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What an end does when asked: one small function per message, plain verbs only.
 */
#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool gid_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, prefix, sizeof(prefix));
}

/* The last one: where v1 and v2 entries of an address stand together, v2 is the later. */
static int gid_find(struct ibv_context *ctx, int table_len, int *index)
{
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	int i;

	*index = -1;
	for (i = 0; i < table_len && i < 256; i++) {
		if (ibv_query_gid(ctx, 1, i, &gid) || !gid_is_ipv4(&gid))
			continue;
		if (!ibv_query_gid_ex(ctx, 1, i, &entry, 0) &&
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		*index = i;
	}
	return *index < 0 ? ENOENT : 0;
}

static struct ibv_context *open_by_name(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	int i;

	for (i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

static int serve_open(struct end_objs *o, uint8_t *base, struct end_msg *m)
{
	char dev[sizeof(m->open.dev)];
	const char *step;
	int err;

	memcpy(dev, m->open.dev, sizeof(dev));
	m->open.base = base;
	step = "no such device, or it does not open";
	o->ctx = open_by_name(dev);
	if (!o->ctx)
		goto err_step;
	step = "query_device";
	if (ibv_query_device(o->ctx, &m->open.attr))
		goto err_step;
	step = "query_port";
	if (ibv_query_port(o->ctx, 1, &m->open.port))
		goto err_step;
	step = "no RoCE v2 GID of an IPv4 address";
	if (m->open.gid_index < 0 &&
	    gid_find(o->ctx, m->open.port.gid_tbl_len, &m->open.gid_index))
		goto err_step;
	step = "query_gid";
	if (ibv_query_gid(o->ctx, 1, m->open.gid_index, &m->open.gid))
		goto err_step;
	return 0;

err_step:
	err = errno ? errno : ENODEV;
	snprintf(m->open.error, sizeof(m->open.error), "%s", step);
	return err;
}

static int close_qps_and_cqs(struct end_objs *o)
{
	int i, err;

	for (i = 0; i < END_QPS; i++) {
		err = o->qp[i] ? ibv_destroy_qp(o->qp[i]) : 0;
		if (err)
			return err;
		o->qp[i] = NULL;
	}
	for (i = 0; i < END_CQS; i++) {
		err = o->cq[i] ? ibv_destroy_cq(o->cq[i]) : 0;
		if (err)
			return err;
		o->cq[i] = NULL;
	}
	return 0;
}

static int serve_close(struct end_objs *o)
{
	int i, err;

	err = close_qps_and_cqs(o);
	for (i = 0; i < END_MRS && !err; i++) {
		err = o->mr[i] ? ibv_dereg_mr(o->mr[i]) : 0;
		o->mr[i] = NULL;
	}
	for (i = 0; i < END_PDS && !err; i++) {
		err = o->pd[i] ? ibv_dealloc_pd(o->pd[i]) : 0;
		o->pd[i] = NULL;
	}
	if (!err && o->ctx)
		err = ibv_close_device(o->ctx) ? EIO : 0;
	o->ctx = NULL;
	return err;
}

static int serve_mr(struct end_objs *o, uint8_t *base, struct end_msg *m)
{
	struct ibv_mr *mr = ibv_reg_mr(o->pd[m->mr.pd], base + m->mr.off, m->mr.len,
				       m->mr.access);

	if (!mr)
		return errno ? errno : EIO;
	o->mr[m->id] = mr;
	m->mr.keys.lkey = mr->lkey;
	m->mr.keys.rkey = mr->rkey;
	return 0;
}

static int serve_mr_dereg(struct end_objs *o, struct end_msg *m)
{
	int err = ibv_dereg_mr(o->mr[m->id]);

	if (!err)
		o->mr[m->id] = NULL;
	return err;
}

static int serve_cq(struct end_objs *o, struct end_msg *m)
{
	o->cq[m->id] = ibv_create_cq(o->ctx, m->n, NULL, NULL, 0);
	return o->cq[m->id] ? 0 : errno ? errno : EIO;
}

static int serve_cq_destroy(struct end_objs *o, struct end_msg *m)
{
	int err = ibv_destroy_cq(o->cq[m->id]);

	if (!err)
		o->cq[m->id] = NULL;
	return err;
}

static int serve_qp(struct end_objs *o, struct end_msg *m)
{
	struct qp_spec *spec = &m->qp.spec;
	struct ibv_qp_init_attr init = {
		.send_cq = o->cq[spec->send_cq],
		.recv_cq = o->cq[spec->recv_cq],
		.cap = spec->cap,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = spec->sig_all,
	};

	o->qp[m->id] = ibv_create_qp(o->pd[spec->pd], &init);
	if (!o->qp[m->id])
		return errno ? errno : EIO;
	spec->cap = init.cap;
	return 0;
}

static int serve_qp_destroy(struct end_objs *o, struct end_msg *m)
{
	int err = ibv_destroy_qp(o->qp[m->id]);

	if (!err)
		o->qp[m->id] = NULL;
	return err;
}

static int serve_qp_state(struct end_objs *o, struct end_msg *m)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(o->qp[m->id], &attr, IBV_QP_STATE, &init);

	m->n = attr.qp_state;
	return err;
}

static int serve_recv(struct end_objs *o, struct end_msg *m)
{
	struct ibv_recv_wr wr = { 0 }, *bad;
	int i, err;

	for (i = 0; i < m->n; i++) {
		wr.wr_id = m->recv[i].wr_id;
		wr.num_sge = m->recv[i].num_sge;
		wr.sg_list = m->recv[i].sge;
		err = ibv_post_recv(o->qp[m->id], &wr, &bad);
		if (err)
			return err;
	}
	return 0;
}

static int serve_send(struct end_objs *o, struct end_msg *m)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = m->send.wr_id,
		.opcode = m->send.opcode,
		.send_flags = m->send.flags,
		.num_sge = m->send.num_sge,
		.sg_list = m->send.sge,
		.imm_data = m->send.imm,
		.wr.rdma.remote_addr = m->send.remote_addr,
		.wr.rdma.rkey = m->send.rkey,
	};

	return ibv_post_send(o->qp[m->id], &wr, &bad);
}

static int serve_poll(struct end_objs *o, struct end_msg *m)
{
	uint64_t until = now_ns() + m->poll.timeout_ms * 1000000ull;
	int got = 0, n;

	do {
		n = ibv_poll_cq(o->cq[m->id], m->n - got, m->poll.wc + got);
		if (n < 0) {
			m->n = 0;
			return EIO;
		}
		got += n;
	} while (got < m->n && now_ns() < until);
	m->n = got;
	return 0;
}

static int serve_event(struct end_objs *o, struct end_msg *m)
{
	struct pollfd pfd = { .fd = o->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	int i, n;

	n = poll(&pfd, 1, m->event.timeout_ms);
	if (n <= 0)
		return n ? errno : ETIMEDOUT;
	if (ibv_get_async_event(o->ctx, &event))
		return errno;
	m->event.type = event.event_type;
	m->event.qp = -1;
	for (i = 0; i < END_QPS; i++)
		if (o->qp[i] && event.element.qp == o->qp[i])
			m->event.qp = i;
	ibv_ack_async_event(&event);
	return 0;
}

static int serve_sleep(struct end_msg *m)
{
	sleep_us(m->n * 1000);
	return 0;
}

static int serve_pd(struct end_objs *o, struct end_msg *m)
{
	o->pd[m->id] = ibv_alloc_pd(o->ctx);
	return o->pd[m->id] ? 0 : errno ? errno : EIO;
}

static int serve_pd_dealloc(struct end_objs *o, struct end_msg *m)
{
	int err = ibv_dealloc_pd(o->pd[m->id]);

	if (!err)
		o->pd[m->id] = NULL;
	return err;
}

static int serve_qp_num(struct end_objs *o, struct end_msg *m)
{
	m->n = o->qp[m->id]->qp_num;
	return 0;
}

static int serve(struct end_objs *o, uint8_t *base, struct end_msg *m)
{
	switch (m->cmd) {
	case END_OPEN:
		return serve_open(o, base, m);
	case END_CLOSE:
		return serve_close(o);
	case END_PD_ALLOC:
		return serve_pd(o, m);
	case END_PD_DEALLOC:
		return serve_pd_dealloc(o, m);
	case END_MR_REG:
		return serve_mr(o, base, m);
	case END_MR_DEREG:
		return serve_mr_dereg(o, m);
	case END_CQ_CREATE:
		return serve_cq(o, m);
	case END_CQ_DESTROY:
		return serve_cq_destroy(o, m);
	case END_QP_CREATE:
		return serve_qp(o, m);
	case END_QP_DESTROY:
		return serve_qp_destroy(o, m);
	case END_QP_NUM:
		return serve_qp_num(o, m);
	case END_QP_MODIFY:
		return ibv_modify_qp(o->qp[m->id], &m->modify.attr, m->modify.mask);
	case END_QP_STATE:
		return serve_qp_state(o, m);
	case END_POST_RECV:
		return serve_recv(o, m);
	case END_POST_SEND:
		return serve_send(o, m);
	case END_POLL:
		return serve_poll(o, m);
	case END_EVENT:
		return serve_event(o, m);
	case END_SLEEP:
		return serve_sleep(m);
	}
	return ENOSYS;
}

void end_serve(struct end_objs *o, uint8_t *base, struct end_msg *m)
{
	m->err = serve(o, base, m);
}
