/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Uses libibverbs as NCCL does: dlopen of libibverbs.so.1 and dlvsym of each function with its
 * version, no link with the library; opens a device by name and does one RDMA WRITE, on a QP
 * connected to itself. A second WRITE is large enough to be cut.
 *
 * Alone among the programs it uses nothing of end.h, whose calls need the library linked.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "common.h"

enum { SMALL_LEN = 64, LARGE_LEN = 4 << 20, HALF = 8 << 20, GIDS_MAX = 256 };

/* The functions themselves, by the version in which each is exported. */
static struct {
	struct ibv_device **(*get_device_list)(int *num);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *dev);
	struct ibv_context *(*open_device)(struct ibv_device *dev);
	int (*close_device)(struct ibv_context *ctx);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *);
	int (*query_gid)(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int cqe, void *tag,
				    struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
} v;

static const struct {
	void *slot;
	const char *name;
	const char *version;
} symbols[] = {
	{ &v.get_device_list, "ibv_get_device_list", "IBVERBS_1.1" },
	{ &v.free_device_list, "ibv_free_device_list", "IBVERBS_1.1" },
	{ &v.get_device_name, "ibv_get_device_name", "IBVERBS_1.1" },
	{ &v.open_device, "ibv_open_device", "IBVERBS_1.1" },
	{ &v.close_device, "ibv_close_device", "IBVERBS_1.1" },
	{ &v.query_port, "ibv_query_port", "IBVERBS_1.1" },
	{ &v.query_gid, "ibv_query_gid", "IBVERBS_1.1" },
	{ &v.alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1" },
	{ &v.dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1" },
	{ &v.reg_mr, "ibv_reg_mr", "IBVERBS_1.1" },
	{ &v.dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1" },
	{ &v.create_cq, "ibv_create_cq", "IBVERBS_1.1" },
	{ &v.destroy_cq, "ibv_destroy_cq", "IBVERBS_1.1" },
	{ &v.create_qp, "ibv_create_qp", "IBVERBS_1.1" },
	{ &v.modify_qp, "ibv_modify_qp", "IBVERBS_1.1" },
	{ &v.destroy_qp, "ibv_destroy_qp", "IBVERBS_1.1" },
};

struct loop {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *mem;
	union ibv_gid gid;
	int gid_index;
	enum ibv_mtu mtu;
};

static void load(void)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);
	size_t i;
	void *sym;

	case_begin("dlopen and dlvsym");
	if (!lib)
		die("%s", dlerror());
	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		sym = dlvsym(lib, symbols[i].name, symbols[i].version);
		if (!sym)
			die("%s@%s: %s", symbols[i].name, symbols[i].version, dlerror());
		memcpy(symbols[i].slot, &sym, sizeof(sym));
	}
	case_end();
}

static void open_named(struct loop *l)
{
	struct ibv_device **list;
	int num = 0, i, seen = 0;

	case_begin("%s is listed and opens", opts.dev[0]);
	list = v.get_device_list(&num);
	for (i = 0; i < num; i++) {
		if (strcmp(v.get_device_name(list[i]), opts.dev[0]))
			continue;
		seen++;
		if (!l->ctx)
			l->ctx = v.open_device(list[i]);
	}
	EXPECT(seen == 1, "%d devices of that name in a list of %d", seen, num);
	if (!l->ctx)
		die("it does not open: %s", strerror(errno));
	v.free_device_list(list);
	case_end();
}

/* The last IPv4-mapped GID is a RoCE v2 one: of an address's two entries v2 is the later. */
static void find_gid(struct loop *l)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };
	union ibv_gid gid;
	int i;

	l->gid_index = -1;
	if (opts.gid_index >= 0) {
		l->gid_index = opts.gid_index;
		MUST(v.query_gid(l->ctx, 1, l->gid_index, &l->gid));
		return;
	}
	for (i = 0; i < GIDS_MAX; i++) {
		if (v.query_gid(l->ctx, 1, i, &gid) ||
		    memcmp(gid.raw, prefix, sizeof(prefix)))
			continue;
		l->gid = gid;
		l->gid_index = i;
	}
	if (l->gid_index < 0)
		die("no GID of an IPv4 address");
}

static void create_all(struct loop *l)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_port_attr port = { 0 };

	/* As the exported function fills it: what callers compiled against it long ago have. */
	MUST(v.query_port(l->ctx, 1, (struct _compat_ibv_port_attr *)&port));
	l->mtu = port.active_mtu;
	find_gid(l);
	l->mem = aligned_alloc(4096, 2 * HALF);
	l->pd = v.alloc_pd(l->ctx);
	l->cq = v.create_cq(l->ctx, 16, NULL, NULL, 0);
	if (!l->mem || !l->pd || !l->cq)
		die("PD or CQ: %s", strerror(errno));
	l->mr = v.reg_mr(l->pd, l->mem, 2 * HALF, IBV_ACCESS_LOCAL_WRITE |
			 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	init.send_cq = init.recv_cq = l->cq;
	l->qp = l->mr ? v.create_qp(l->pd, &init) : NULL;
	if (!l->qp)
		die("MR or QP: %s", strerror(errno));
}

static void connect_self(struct loop *l)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = l->mtu,
		.dest_qp_num = l->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = l->gid, .sgid_index = l->gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	MUST(v.modify_qp(l->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			 IBV_QP_ACCESS_FLAGS));
	MUST(v.modify_qp(l->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_MIN_RNR_TIMER));
	MUST(v.modify_qp(l->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void write_one(struct loop *l, uint32_t len)
{
	uint64_t until = now_ns() + opts.wait_ms * 1000000ull;
	struct ibv_sge sge = { (uintptr_t)l->mem, len, l->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = len,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)l->mem + HALF, l->mr->rkey },
	};
	struct rng r = { opts.seed };
	struct ibv_wc wc;
	int n;

	case_begin("WRITE of %u bytes", len);
	rng_fill(&r, l->mem, len);
	memset(l->mem + HALF, 0, HALF);
	/* Posting and polling are inline functions that go through the context's table. */
	MUST(ibv_post_send(l->qp, &wr, &bad));
	while (!(n = ibv_poll_cq(l->cq, 1, &wc)) && now_ns() < until)
		;
	EXPECT(n == 1 && !wc.status && wc.wr_id == len, "%d completions, status %d", n,
	       n == 1 ? (int)wc.status : 0);
	EXPECT(!memcmp(l->mem, l->mem + HALF, len) && !l->mem[HALF + len], "data differs");
	case_end();
}

static void destroy_all(struct loop *l)
{
	MUST(v.destroy_qp(l->qp));
	MUST(v.dereg_mr(l->mr));
	MUST(v.destroy_cq(l->cq));
	MUST(v.dealloc_pd(l->pd));
	MUST(v.close_device(l->ctx));
	free(l->mem);
}

int main(int argc, char **argv)
{
	struct loop loop = { 0 };

	opts_parse(argc, argv, "libibverbs by dlopen and dlvsym", NULL);
	load();
	open_named(&loop);
	create_all(&loop);
	connect_self(&loop);
	write_one(&loop, SMALL_LEN);
	write_one(&loop, LARGE_LEN);
	destroy_all(&loop);
	return report();
}
