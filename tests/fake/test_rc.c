/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Every operation of an RC QP between two fake NICs of one process: data, completions, order.
 */
#include "pair.h"

#include <arpa/inet.h>

static int setup(void **state)
{
	static struct pair p;

	pair_open(&p, NULL);
	fill(p.a.buf, BUF_BYTES, 1);
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	pair_close(*state);
	return 0;
}

static void write_moves_data(void **state)
{
	struct pair *p = *state;
	static const uint32_t lengths[] = { 1, 7, 8, 9, 15, 64, 4095, 4096, 4097, 65536, 1000003 };

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		memset(p->b.buf, 0xee, BUF_BYTES);
		post(&p->a, &p->b, IBV_WR_RDMA_WRITE, 13, lengths[i], i);
		expect_wc(p->a.scq, i, IBV_WC_SUCCESS);
		assert_int_equal(p->b.buf[12], 0xee);
		assert_memory_equal(p->b.buf + 13, p->a.buf + 13, lengths[i]);
		assert_int_equal(p->b.buf[13 + lengths[i]], 0xee);
	}
}

static void read_moves_data(void **state)
{
	struct pair *p = *state;
	struct ibv_wc wc;

	fill(p->b.buf, BUF_BYTES, 9);
	post(&p->a, &p->b, IBV_WR_RDMA_READ, 5, 70000, 1);
	wc = wait_wc(p->a.scq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_int_equal(wc.byte_len, 70000);
	assert_memory_equal(p->a.buf + 5, p->b.buf + 5, 70000);
	assert_int_not_equal(p->a.buf[4], p->b.buf[4]);
}

static void send_fills_receives_in_order(void **state)
{
	struct pair *p = *state;
	struct wr w;
	struct ibv_wc wc;

	post_recv(&p->b, 0, 100, 1);
	post_recv(&p->b, 1000, 100, 2);
	post(&p->a, NULL, IBV_WR_SEND, 0, 100, 3);
	wr_make(&w, &p->a, NULL, IBV_WR_SEND_WITH_IMM, 1000, 10);
	w.wr.imm_data = htonl(0x12345678);
	w.wr.wr_id = 4;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 3, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 4, IBV_WC_SUCCESS);
	wc = wait_wc(p->b.rcq);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.byte_len, 100);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.wc_flags, 0);
	assert_int_equal(wc.qp_num, p->b.qp->qp_num);
	wc = wait_wc(p->b.rcq);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.byte_len, 10);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(wc.imm_data, htonl(0x12345678));
	assert_memory_equal(p->b.buf, p->a.buf, 100);
	assert_memory_equal(p->b.buf + 1000, p->a.buf + 1000, 10);
}

static void write_with_imm_consumes_a_receive(void **state)
{
	struct pair *p = *state;
	struct ibv_wc wc;

	post_recv(&p->b, 0, 0, 7);
	post(&p->a, &p->b, IBV_WR_RDMA_WRITE_WITH_IMM, 64, 5000, 1);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	wc = wait_wc(p->b.rcq);
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 5000);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_memory_equal(p->b.buf + 64, p->a.buf + 64, 5000);
}

static void send_with_inv_revokes_the_rkey(void **state)
{
	struct pair *p = *state;
	struct ibv_mr *mr = ibv_reg_mr(p->b.pd, p->b.buf, 4096, ALL_ACCESS);
	struct ibv_wc wc;
	struct wr w;

	post_recv(&p->b, 0, 100, 1);
	wr_make(&w, &p->a, NULL, IBV_WR_SEND_WITH_INV, 0, 10);
	w.wr.invalidate_rkey = mr->rkey;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	wc = wait_wc(p->b.rcq);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, mr->rkey);
	wr_make(&w, &p->a, &p->b, IBV_WR_RDMA_WRITE, 0, 10);
	w.wr.wr.rdma.rkey = mr->rkey;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(wait_event(p->b.ctx).event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void atomics_answer_what_was_there(void **state)
{
	struct pair *p = *state;
	uint64_t *here = (void *)(p->a.buf + 128), *there = (void *)(p->b.buf + 128);
	struct wr w;

	*there = 40;
	wr_make(&w, &p->a, &p->b, IBV_WR_ATOMIC_FETCH_AND_ADD, 128, 8);
	w.wr.wr.atomic.compare_add = 2;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	assert_int_equal(*here, 40);
	assert_int_equal(*there, 42);
	wr_make(&w, &p->a, &p->b, IBV_WR_ATOMIC_CMP_AND_SWP, 128, 8);
	w.wr.wr.atomic.compare_add = 41;
	w.wr.wr.atomic.swap = 7;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	assert_int_equal(*here, 42);
	assert_int_equal(*there, 42);
	w.wr.wr.atomic.compare_add = 42;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	assert_int_equal(*here, 42);
	assert_int_equal(*there, 7);
}

static void sge_lists_gather_and_scatter(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge[4];
	struct wr w;
	uint32_t at = 0;

	for (int i = 0; i < 4; i++) {
		sge[i].addr = (uintptr_t)p->a.buf + i * 10000;
		sge[i].length = i * 1000;
		sge[i].lkey = p->a.mr->lkey;
		at += sge[i].length;
	}
	wr_make(&w, &p->a, &p->b, IBV_WR_RDMA_WRITE, 0, 0);
	w.wr.sg_list = sge;
	w.wr.num_sge = 4;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	at = 0;
	for (int i = 0; i < 4; i++, at += i ? sge[i - 1].length : 0)
		assert_memory_equal(p->b.buf + at, p->a.buf + i * 10000, sge[i].length);
	memset(p->a.buf, 0, BUF_BYTES);
	w.wr.opcode = IBV_WR_RDMA_READ;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	assert_memory_equal(p->a.buf + 30000, p->b.buf + 3000, 3000);
	assert_memory_equal(p->a.buf + 20000, p->b.buf + 1000, 2000);
}

static void receive_scatters_over_its_sges(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge[3] = { { (uintptr_t)p->b.buf, 5, p->b.mr->lkey },
				  { (uintptr_t)p->b.buf + 100, 0, 0 },
				  { (uintptr_t)p->b.buf + 200, 50, p->b.mr->lkey } };
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 3 }, *bad;

	assert_int_equal(ibv_post_recv(p->b.qp, &wr, &bad), 0);
	post(&p->a, NULL, IBV_WR_SEND, 0, 20, 1);
	assert_int_equal(wait_wc(p->b.rcq).byte_len, 20);
	assert_memory_equal(p->b.buf, p->a.buf, 5);
	assert_memory_equal(p->b.buf + 200, p->a.buf + 5, 15);
	assert_int_equal(p->b.buf[215], 0);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
}

static void inline_data_is_taken_at_post(void **state)
{
	struct pair *p = *state;
	uint8_t data[40];
	struct wr w;

	memset(data, 0x11, sizeof(data));
	fake_ctl_set("a0", FAKE_DELAY_US, 2000);
	wr_make(&w, &p->a, &p->b, IBV_WR_RDMA_WRITE, 0, sizeof(data));
	w.sge = (struct ibv_sge){ (uintptr_t)data, sizeof(data), 0xdead };
	w.wr.send_flags |= IBV_SEND_INLINE;
	assert_int_equal(wr_post(&p->a, &w), 0);
	memset(data, 0x22, sizeof(data));
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	fake_ctl_reset();
	assert_int_equal(p->b.buf[0], 0x11);
	assert_int_equal(p->b.buf[39], 0x11);
	assert_int_equal(p->b.buf[40], 0);
}

static void zero_length_needs_no_key(void **state)
{
	struct pair *p = *state;
	struct wr w;

	wr_make(&w, &p->a, &p->b, IBV_WR_RDMA_WRITE, 0, 0);
	w.wr.wr.rdma.rkey = 0xbad;
	w.wr.num_sge = 0;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	w.wr.opcode = IBV_WR_RDMA_READ;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
}

static void unsignalled_gives_no_completion(void **state)
{
	struct pair *p = *state;
	struct wr w;

	for (int i = 0; i < 10; i++) {
		wr_make(&w, &p->a, &p->b, IBV_WR_RDMA_WRITE, i * 8, 8);
		w.wr.wr_id = i;
		w.wr.send_flags = i == 9 ? IBV_SEND_SIGNALED : 0;
		assert_int_equal(wr_post(&p->a, &w), 0);
	}
	expect_wc(p->a.scq, 9, IBV_WC_SUCCESS);
	expect_none(p->a.scq, 5);
	assert_memory_equal(p->b.buf, p->a.buf, 80);
}

static void sig_all_completes_everything(void **state)
{
	const struct options opt = { .sig_all = true };
	struct pair p;
	struct wr w;

	(void)state;
	pair_open(&p, &opt);
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	w.wr.send_flags = 0;
	assert_int_equal(wr_post(&p.a, &w), 0);
	expect_wc(p.a.scq, 0, IBV_WC_SUCCESS);
	pair_close(&p);
}

static void fence_waits_for_reads(void **state)
{
	struct pair *p = *state;
	int64_t writes = fake_ctl_get("b0", FAKE_RX_WRITE);
	struct wr w;

	memset(p->a.buf, 1, 16);
	memset(p->b.buf, 2, 8);
	fake_ctl_set("a0", FAKE_ACK_DELAY_US, 300000);
	post(&p->a, &p->b, IBV_WR_RDMA_READ, 0, 8, 1);
	wr_make(&w, &p->a, &p->b, IBV_WR_RDMA_WRITE, 0, 8);
	w.wr.wr.rdma.remote_addr += 64;
	w.wr.send_flags |= IBV_SEND_FENCE;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_none(p->a.scq, 30);
	assert_int_equal(fake_ctl_get("b0", FAKE_RX_WRITE), writes);
	fake_ctl_reset();
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	assert_int_equal(p->b.buf[64], 2);
}

static void chain_with_a_bad_wr_posts_those_before(void **state)
{
	struct pair *p = *state;
	struct ibv_send_wr *bad = NULL;
	struct wr w[4];

	for (int i = 0; i < 4; i++) {
		wr_make(&w[i], &p->a, &p->b, IBV_WR_RDMA_WRITE, i * 8, 8);
		w[i].wr.wr_id = i;
		w[i].wr.next = i < 3 ? &w[i + 1].wr : NULL;
	}
	w[2].wr.num_sge = 5;
	assert_int_equal(ibv_post_send(p->a.qp, &w[0].wr, &bad), EINVAL);
	assert_ptr_equal(bad, &w[2].wr);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	expect_wc(p->a.scq, 1, IBV_WC_SUCCESS);
	expect_none(p->a.scq, 5);
}

static void slots_are_free_when_polled(void **state)
{
	const struct options opt = { .send_wr = 16, .cqe = 16 };
	struct pair p;
	struct wr w;

	(void)state;
	pair_open(&p, &opt);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 16; i++) {
			wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
			w.wr.send_flags = i == 15 ? IBV_SEND_SIGNALED : 0;
			assert_int_equal(wr_post(&p.a, &w), 0);
		}
		assert_int_equal(wr_post(&p.a, &w), ENOMEM);
		expect_wc(p.a.scq, 0, IBV_WC_SUCCESS);
	}
	pair_close(&p);
}

static void a_qp_talks_to_itself(void **state)
{
	struct end e;

	(void)state;
	end_open(&e, "a0", NULL);
	end_connect(&e, &e.gid, e.qp->qp_num);
	fill(e.buf, 4096, 3);
	post_recv(&e, 8192, 100, 9);
	post(&e, NULL, IBV_WR_SEND, 0, 100, 1);
	expect_wc(e.scq, 1, IBV_WC_SUCCESS);
	expect_wc(e.rcq, 9, IBV_WC_SUCCESS);
	assert_memory_equal(e.buf + 8192, e.buf, 100);
	end_close(&e);
}

static void keys_and_numbers_differ(void **state)
{
	struct pair *p = *state;
	struct ibv_mr *again = ibv_reg_mr(p->a.pd, p->a.buf, 4096, ALL_ACCESS);

	assert_int_not_equal(p->a.mr->lkey, p->a.mr->rkey);
	assert_int_not_equal(p->a.mr->rkey, p->b.mr->rkey);
	assert_int_not_equal(p->a.mr->lkey, p->b.mr->lkey);
	assert_int_not_equal(p->a.mr->rkey, again->rkey);
	assert_int_not_equal(p->a.qp->qp_num, p->b.qp->qp_num);
	assert_int_equal(ibv_dereg_mr(again), 0);
}

static void iova_is_translated(void **state)
{
	struct pair *p = *state;
	struct ibv_mr *mr = ibv_reg_mr_iova(p->b.pd, p->b.buf + 4096, 4096, 0x1000, ALL_ACCESS);
	struct wr w;

	wr_make(&w, &p->a, &p->b, IBV_WR_RDMA_WRITE, 0, 100);
	w.wr.wr.rdma.remote_addr = 0x1010;
	w.wr.wr.rdma.rkey = mr->rkey;
	assert_int_equal(wr_post(&p->a, &w), 0);
	expect_wc(p->a.scq, 0, IBV_WC_SUCCESS);
	assert_memory_equal(p->b.buf + 4096 + 0x10, p->a.buf, 100);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(write_moves_data),
		T(read_moves_data),
		T(send_fills_receives_in_order),
		T(write_with_imm_consumes_a_receive),
		T(send_with_inv_revokes_the_rkey),
		T(atomics_answer_what_was_there),
		T(sge_lists_gather_and_scatter),
		T(receive_scatters_over_its_sges),
		T(inline_data_is_taken_at_post),
		T(zero_length_needs_no_key),
		T(unsignalled_gives_no_completion),
		cmocka_unit_test(sig_all_completes_everything),
		T(fence_waits_for_reads),
		T(chain_with_a_bad_wr_posts_those_before),
		cmocka_unit_test(slots_are_free_when_polled),
		cmocka_unit_test(a_qp_talks_to_itself),
		T(keys_and_numbers_differ),
		T(iova_is_translated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
