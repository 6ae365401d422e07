/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Extended CQ polling: start, next, end, and every read function, for sends, receives and
 * failures, against what was posted. Builders of work requests are in wr_api.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "end.h"

enum {
	DEPTH_WR = 16,
	EX_CQ = 1,
	MSG_LEN = 3000,
	LARGE_LEN = 1 << 20,
	ARENA_LEN = 4 << 20,
	RECV_OFF = 2 << 20,
	IMM = 0x7654321,
	GARBAGE_BITS = 0x00a5a500,
};

static bool opt_exact;

static const struct opt_row rows[] = {
	{ "exact", OPT_FLAG, &opt_exact, "the device refuses flags that it does not know" },
	{ 0 },
};

static const struct {
	const char *name;
	uint64_t flag;
} optional[] = {
	{ "COMPLETION_TIMESTAMP", IBV_WC_EX_WITH_COMPLETION_TIMESTAMP },
	{ "CVLAN", IBV_WC_EX_WITH_CVLAN },
	{ "FLOW_TAG", IBV_WC_EX_WITH_FLOW_TAG },
	{ "TM_INFO", IBV_WC_EX_WITH_TM_INFO },
	{ "COMPLETION_TIMESTAMP_WALLCLOCK", IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK },
};

static struct pair pair;
static struct end_keys keys_a, keys_b;
static struct ibv_cq_ex *cqx;

/* What a completion must say. */
struct due {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	bool has_len;
	uint32_t len;
	bool has_imm;
};

static struct ibv_cq_ex *cq_make(uint64_t wc_flags, uint32_t flags)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 4 * DEPTH_WR,
		.wc_flags = wc_flags,
		.comp_mask = flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0,
		.flags = flags,
	};

	errno = 0;
	return ibv_create_cq_ex(pair.a.objs->ctx, &init);
}

static bool set_up(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec at_a = { .send_cq = EX_CQ, .recv_cq = EX_CQ,
				.cap = { .max_send_wr = DEPTH_WR, .max_recv_wr = DEPTH_WR,
					 .max_send_sge = 1, .max_recv_sge = 1 } };
	struct qp_spec at_b = at_a;

	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, 4 * DEPTH_WR, &keys_a, &keys_b);
	cqx = cq_make(IBV_WC_STANDARD_FLAGS, 0);
	if (!cqx) {
		case_begin("create_cq_ex with the standard flags");
		if (errno == EOPNOTSUPP || errno == ENOSYS)
			case_skip("the device does not offer it");
		else
			case_fail("%s", strerror(errno));
		case_end();
		return false;
	}
	pair.a.objs->cq[EX_CQ] = ibv_cq_ex_to_cq(cqx);
	at_b.send_cq = at_b.recv_cq = 0;
	MUST(end_qp_create(&pair.a, 0, &at_a));
	MUST(end_qp_create(&pair.b, 0, &at_b));
	MUST(pair_connect(&pair, 0, 0, &conn));
	return true;
}

static int start(void)
{
	struct ibv_poll_cq_attr attr = { 0 };

	return ibv_start_poll(cqx, &attr);
}

/* Starts a poll with a completion at hand, waiting for it; false after opts.wait_ms. */
static bool start_wait(void)
{
	uint64_t until = now_ns() + opts.wait_ms * 1000000ull;
	int err;

	do {
		err = start();
	} while (err == ENOENT && now_ns() < until);
	EXPECT(!err, "start_poll: %s", strerror(err));
	return !err;
}

static void check_current(const struct due *due)
{
	unsigned int flags;

	EXPECT(cqx->wr_id == due->wr_id, "wr_id %llu, must be %llu",
	       (unsigned long long)cqx->wr_id, (unsigned long long)due->wr_id);
	EXPECT(cqx->status == due->status, "wr_id %llu: %s, must be %s",
	       (unsigned long long)cqx->wr_id, ibv_wc_status_str(cqx->status),
	       ibv_wc_status_str(due->status));
	/* Any value is right, but reading it must be. */
	(void)ibv_wc_read_vendor_err(cqx);
	EXPECT(ibv_wc_read_qp_num(cqx) == pair.a.objs->qp[0]->qp_num, "qp_num %#x",
	       ibv_wc_read_qp_num(cqx));
	if (cqx->status)
		return;
	EXPECT(ibv_wc_read_opcode(cqx) == due->opcode, "opcode %d, must be %d",
	       ibv_wc_read_opcode(cqx), due->opcode);
	EXPECT(!due->has_len || ibv_wc_read_byte_len(cqx) == due->len,
	       "byte_len %u, must be %u", ibv_wc_read_byte_len(cqx), due->len);
	flags = ibv_wc_read_wc_flags(cqx);
	EXPECT(!!(flags & IBV_WC_WITH_IMM) == due->has_imm, "wc_flags %#x", flags);
	EXPECT(!due->has_imm || ibv_wc_read_imm_data(cqx) == htonl(IMM), "imm_data %#x",
	       ntohl(ibv_wc_read_imm_data(cqx)));
	/* Of no meaning on RC over RoCE. */
	(void)ibv_wc_read_src_qp(cqx);
	(void)ibv_wc_read_slid(cqx);
	(void)ibv_wc_read_sl(cqx);
	(void)ibv_wc_read_dlid_path_bits(cqx);
}

static void post(uint64_t wr_id, enum ibv_wr_opcode opcode, uint32_t len, uint32_t rkey)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, len, keys_a.lkey);
	struct ibv_send_wr wr = wr_make(wr_id, opcode, &sge, &pair.b, 0, rkey);

	EXPECT_OK(post_one(pair.a.objs->qp[0], &wr));
}

static void test_empty(void)
{
	int i;

	case_begin("start_poll of an empty CQ");
	for (i = 0; i < 3; i++)
		EXPECT(start() == ENOENT, "it does not say ENOENT");
	case_end();
}

static void test_sends(void)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		enum ibv_wc_opcode wc;
		uint32_t len;
	} ops[] = {
		{ IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, MSG_LEN },
		{ IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, MSG_LEN },
		{ IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, LARGE_LEN },
		{ IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, LARGE_LEN },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, 8 },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, 8 },
	};
	struct due due = { 0 };
	size_t i;

	case_begin("completions of WRITE, READ and atomics, one by one");
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]) && !case_failed(); i++) {
		due.wr_id = 0x300000000ull + i;
		due.opcode = ops[i].wc;
		due.len = ops[i].len;
		due.has_len = ops[i].opcode != IBV_WR_RDMA_WRITE;
		post(due.wr_id, ops[i].opcode, ops[i].len, keys_b.rkey);
		if (!start_wait())
			break;
		check_current(&due);
		EXPECT(ibv_next_poll(cqx) == ENOENT, "next_poll finds one more");
		ibv_end_poll(cqx);
	}
	EXPECT(start() == ENOENT, "a completion was given twice");
	case_end();
}

static void test_next(void)
{
	struct due due = { .opcode = IBV_WC_RDMA_WRITE };
	unsigned int seen = 0;
	int err;

	case_begin("next_poll over %d completions", DEPTH_WR);
	for (due.wr_id = 0; due.wr_id < DEPTH_WR; due.wr_id++)
		post(due.wr_id, IBV_WR_RDMA_WRITE, MSG_LEN, keys_b.rkey);
	due.wr_id = 0;
	/* In parts of three and less, so that every end comes before and after a completion. */
	while (seen < DEPTH_WR && !case_failed() && start_wait()) {
		do {
			check_current(&due);
			due.wr_id++;
			err = ++seen % 3 ? ibv_next_poll(cqx) : ENOENT;
		} while (!err);
		EXPECT(err == ENOENT, "next_poll: %s", strerror(err));
		ibv_end_poll(cqx);
	}
	EXPECT(start() == ENOENT, "one too many");
	case_end();
}

static void message_to_a(uint64_t wr_id, enum ibv_wr_opcode opcode)
{
	struct end_recv recv = { .wr_id = wr_id, .num_sge = 1 };
	struct end_send send = {
		.opcode = opcode,
		.flags = IBV_SEND_SIGNALED,
		.imm = htonl(IMM),
		.num_sge = 1,
		.remote_addr = (uintptr_t)pair.a.base + RECV_OFF,
		.rkey = keys_a.rkey,
	};

	recv.sge[0] = sge_at(&pair.a, RECV_OFF, MSG_LEN, keys_a.lkey);
	send.sge[0] = sge_at(&pair.b, 0, MSG_LEN, keys_b.lkey);
	EXPECT_OK(end_post_recv(&pair.a, 0, &recv, 1));
	EXPECT_OK(end_post_send(&pair.b, 0, &send));
	wait_good(&pair.b, 0, 1);
}

static void test_receives(void)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct due due = { .has_len = true, .len = MSG_LEN };
	size_t i;

	case_begin("completions of receives");
	for (i = 0; i < 3 && !case_failed(); i++) {
		due.wr_id = 0x400000000ull + i;
		due.opcode = i == 2 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
		due.has_imm = i > 0;
		message_to_a(due.wr_id, ops[i]);
		if (!start_wait())
			break;
		check_current(&due);
		ibv_end_poll(cqx);
	}
	case_end();
}

static void test_plain_beside(void)
{
	struct due due = { .wr_id = 2, .opcode = IBV_WC_RDMA_WRITE };

	case_begin("poll_cq beside start_poll");
	post(1, IBV_WR_RDMA_WRITE, MSG_LEN, keys_b.rkey);
	wait_good(&pair.a, EX_CQ, 1);
	post(2, IBV_WR_RDMA_WRITE, MSG_LEN, keys_b.rkey);
	if (start_wait()) {
		check_current(&due);
		ibv_end_poll(cqx);
	}
	wait_none(&pair.a, EX_CQ, 5);
	case_end();
}

static void test_failures(void)
{
	struct due due = { .opcode = IBV_WC_RDMA_WRITE };
	int i;

	case_begin("completions of a failed WR and of flushed ones");
	for (i = 0; i < 4; i++)
		post(i, IBV_WR_RDMA_WRITE, MSG_LEN, keys_b.rkey ^ (i == 1 ? GARBAGE_BITS : 0));
	for (i = 0; i < 4 && !case_failed(); i++) {
		due.wr_id = i;
		due.status = i == 0 ? IBV_WC_SUCCESS :
			     i == 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR;
		if (!start_wait())
			break;
		check_current(&due);
		ibv_end_poll(cqx);
	}
	case_end();
}

/* Each optional field is either refused or can be read. */
static void test_optional(void)
{
	struct ibv_cq_ex *cq;
	size_t i;

	for (i = 0; i < sizeof(optional) / sizeof(optional[0]); i++) {
		case_begin("CQ with %s", optional[i].name);
		cq = cq_make(IBV_WC_STANDARD_FLAGS | optional[i].flag, 0);
		if (!cq) {
			EXPECT(errno == EOPNOTSUPP || errno == EINVAL || errno == ENOTSUP,
			       "refused with %s", strerror(errno));
			case_note("refused");
		} else {
			struct ibv_poll_cq_attr attr = { 0 };

			EXPECT(ibv_start_poll(cq, &attr) == ENOENT, "an empty CQ is not empty");
			EXPECT_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
			case_note("offered");
		}
		case_end();
	}
}

static void test_unknown_flag(void)
{
	struct ibv_cq_ex *cq;

	case_begin("CQ flag that does not exist");
	if (!opt_exact) {
		case_skip("without --exact a device need not look at it");
		case_end();
		return;
	}
	cq = cq_make(IBV_WC_STANDARD_FLAGS, 1u << 30);
	EXPECT(!cq && (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS),
	       "%s", cq ? "it is taken" : strerror(errno));
	if (cq)
		ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
	case_end();
}

int main(int argc, char **argv)
{
	opts_parse(argc, argv, "extended CQ polling", rows);
	if (set_up()) {
		test_empty();
		test_sends();
		test_next();
		test_receives();
		test_plain_beside();
		test_failures();
		test_optional();
		test_unknown_flag();
	}
	pair_close(&pair);
	return report();
}
