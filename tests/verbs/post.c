/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The common way to post a work request at end a and to wait for completions.
 */
#include "end.h"

#include <stdlib.h>

struct ibv_send_wr wr_make(uint64_t wr_id, enum ibv_wr_opcode opcode, struct ibv_sge *sge,
			   const struct end *to, uint64_t off, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = sge,
		.num_sge = sge ? 1 : 0,
	};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)to->base + off;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)to->base + off;
		wr.wr.rdma.rkey = rkey;
	}
	return wr;
}

int post_one(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->next = NULL;
	return abs(ibv_post_send(qp, wr, &bad));
}

int post_chain(struct ibv_qp *qp, struct ibv_send_wr *wr, int n, struct ibv_send_wr **bad)
{
	int i;

	for (i = 0; i < n; i++)
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	*bad = NULL;
	return abs(ibv_post_send(qp, wr, bad));
}

bool wait_good(struct end *e, int cq, int n)
{
	struct ibv_wc wc[END_WCS];
	int got, i;
	bool good = true;

	for (; n > 0; n -= got) {
		got = end_poll(e, cq, wc, n, opts.wait_ms);
		if (!got) {
			case_fail("%s: %d completions missing after %u ms", e->dev, n,
				  opts.wait_ms);
			return false;
		}
		for (i = 0; i < got; i++) {
			if (!wc[i].status)
				continue;
			case_fail("%s: wr_id %llu: %s", e->dev,
				  (unsigned long long)wc[i].wr_id,
				  ibv_wc_status_str(wc[i].status));
			good = false;
		}
	}
	return good;
}

bool wait_none(struct end *e, int cq, unsigned int ms)
{
	struct ibv_wc wc;

	if (!end_poll(e, cq, &wc, 1, ms))
		return true;
	case_fail("%s: unexpected completion: wr_id %llu %s", e->dev,
		  (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
	return false;
}
