/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From RESET to RTS: the attributes of an RC connection over RoCE, and the set of objects that
 * most programs start with.
 */
#include "end.h"

#include <string.h>

enum {
	PSN_A = 0x1000,
	HOP_LIMIT = 64,
	/* 4.096 us * 2^18 = 1 s: an emulated NIC behind a rate limit must not look dead. */
	ACK_TIMEOUT = 18,
};

struct conn_spec conn_defaults(void)
{
	return (struct conn_spec){
		.access_a = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			    IBV_ACCESS_REMOTE_ATOMIC,
		.access_b = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			    IBV_ACCESS_REMOTE_ATOMIC,
		.rd_atomic = 4,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
	};
}

int end_to_init(struct end *e, int qp, int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = access,
	};

	return end_qp_modify(e, qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     IBV_QP_ACCESS_FLAGS);
}

static uint8_t rd_atomic_of(const struct end *x, const struct end *y, int wanted)
{
	int depth = wanted;

	if (depth > x->attr.max_qp_rd_atom)
		depth = x->attr.max_qp_rd_atom;
	if (depth > y->attr.max_qp_init_rd_atom)
		depth = y->attr.max_qp_init_rd_atom;
	return depth;
}

/* Each QP's PSN starts at a value of its own, so that mixed-up ones show. */
static uint32_t psn_of(uint32_t qpn)
{
	return (PSN_A + qpn * 7919) & 0xffffff;
}

int end_to_rtr(struct end *e, int qp, struct end *peer, int peer_qp,
	       const struct conn_spec *spec)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.min_rnr_timer = spec->min_rnr_timer,
		.max_dest_rd_atomic = rd_atomic_of(e, peer, spec->rd_atomic),
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.dlid = peer->port.lid,
			.grh = {
				.dgid = peer->gid,
				.sgid_index = e->gid_index,
				.hop_limit = HOP_LIMIT,
			},
		},
	};
	int err;

	attr.path_mtu = e->port.active_mtu < peer->port.active_mtu ? e->port.active_mtu :
								     peer->port.active_mtu;
	err = end_qp_num(peer, peer_qp, &attr.dest_qp_num);
	if (err)
		return err;
	attr.rq_psn = psn_of(attr.dest_qp_num);
	return end_qp_modify(e, qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int end_to_rts(struct end *e, int qp, const struct conn_spec *spec)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = spec->timeout,
		.retry_cnt = spec->retry_cnt,
		.rnr_retry = spec->rnr_retry,
		.max_rd_atomic = rd_atomic_of(e, e, spec->rd_atomic),
	};
	uint32_t qpn;
	int err;

	err = end_qp_num(e, qp, &qpn);
	if (err)
		return err;
	attr.sq_psn = psn_of(qpn);
	return end_qp_modify(e, qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int pair_connect(struct pair *p, int qp_a, int qp_b, const struct conn_spec *spec)
{
	int err;

	err = end_to_init(&p->a, qp_a, spec->access_a);
	if (!err)
		err = end_to_init(&p->b, qp_b, spec->access_b);
	if (!err)
		err = end_to_rtr(&p->a, qp_a, &p->b, qp_b, spec);
	if (!err)
		err = end_to_rtr(&p->b, qp_b, &p->a, qp_a, spec);
	if (!err)
		err = end_to_rts(&p->b, qp_b, spec);
	if (!err)
		err = end_to_rts(&p->a, qp_a, spec);
	return err;
}

void pair_basics(struct pair *p, int cqe, struct end_keys *keys_a, struct end_keys *keys_b)
{
	MUST(end_pd(&p->a, 0));
	MUST(end_pd(&p->b, 0));
	MUST(end_cq_create(&p->a, 0, cqe));
	MUST(end_cq_create(&p->b, 0, cqe));
	MUST(end_mr_reg(&p->a, 0, 0, 0, p->a.arena_len, ALL_ACCESS, keys_a));
	MUST(end_mr_reg(&p->b, 0, 0, 0, p->b.arena_len, ALL_ACCESS, keys_b));
}

void pair_qp(struct pair *p, int qp, unsigned int max_wr, const struct conn_spec *spec)
{
	const struct ibv_qp_cap cap = {
		.max_send_wr = max_wr,
		.max_recv_wr = max_wr,
		.max_send_sge = 4,
		.max_recv_sge = 4,
		.max_inline_data = 32,
	};
	struct qp_spec at_a = { .cap = cap }, at_b = { .cap = cap };

	MUST(end_qp_create(&p->a, qp, &at_a));
	MUST(end_qp_create(&p->b, qp, &at_b));
	MUST(pair_connect(p, qp, qp, spec));
}
