/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Objects of a fake NIC: what may be made, asked and destroyed when; states of a queue pair.
 */
#include "pair.h"

static struct end e;

static int setup(void **state)
{
	(void)state;
	end_open(&e, "a0", NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	end_close(&e);
	return 0;
}

static void in_use_cannot_be_destroyed(void **state)
{
	(void)state;
	assert_int_equal(ibv_destroy_cq(e.scq), EBUSY);
	assert_int_equal(ibv_dealloc_pd(e.pd), EBUSY);
}

static void srq_in_use_cannot_be_destroyed(void **state)
{
	const struct options opt = { .srq = true };
	struct end s;

	(void)state;
	end_open(&s, "a0", &opt);
	assert_int_equal(ibv_destroy_srq(s.srq), EBUSY);
	end_close(&s);
}

static void queue_pair_limits(void **state)
{
	struct ibv_qp_init_attr attr = { .send_cq = e.scq,
					 .recv_cq = e.rcq,
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp;

	(void)state;
	attr.cap = (struct ibv_qp_cap){ 16385, 1, 1, 1, 0 };
	assert_null(ibv_create_qp(e.pd, &attr));
	assert_int_equal(errno, EINVAL);
	attr.cap = (struct ibv_qp_cap){ 16384, 1, 17, 1, 0 };
	assert_null(ibv_create_qp(e.pd, &attr));
	attr.cap = (struct ibv_qp_cap){ 16384, 1, 16, 1, 513 };
	assert_null(ibv_create_qp(e.pd, &attr));
	attr.cap = (struct ibv_qp_cap){ 16384, 7, 16, 0, 512 };
	qp = ibv_create_qp(e.pd, &attr);
	assert_non_null(qp);
	assert_int_equal(attr.cap.max_send_wr, 16384);
	assert_int_equal(attr.cap.max_recv_wr, 7);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	attr.qp_type = IBV_QPT_XRC_SEND;
	assert_null(ibv_create_qp(e.pd, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
}

static void completion_queue_limits(void **state)
{
	(void)state;
	assert_null(ibv_create_cq(e.ctx, 0, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_cq(e.ctx, (1 << 20) + 1, NULL, NULL, 0));
	assert_null(ibv_create_cq(e.ctx, 1, NULL, NULL, 4));
}

static void region_rights(void **state)
{
	(void)state;
	assert_null(ibv_reg_mr(e.pd, e.buf, 8, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(e.pd, e.buf, 8, IBV_ACCESS_ON_DEMAND));
	assert_int_equal(errno, EOPNOTSUPP);
}

static int to_rtr(uint32_t change, int leave_out)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_4096,
				    .dest_qp_num = 5,
				    .ah_attr = { .is_global = 1,
						 .port_num = 1,
						 .grh = { .dgid = e.gid, .sgid_index = 1 } } };
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	if (change & 1)
		attr.ah_attr.grh.sgid_index = 3; /* an empty entry */
	if (change & 2)
		attr.path_mtu = 6;
	if (change & 4)
		attr.max_dest_rd_atomic = 17;
	if (change & 8)
		attr.ah_attr.is_global = 0;
	return ibv_modify_qp(e.qp, &attr, mask & ~leave_out);
}

static void transitions_are_checked(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;

	(void)state;
	assert_int_equal(to_rtr(0, 0), EINVAL); /* from RESET */
	assert_int_equal(ibv_modify_qp(e.qp, &attr, mask & ~IBV_QP_PORT), EINVAL);
	assert_int_equal(ibv_modify_qp(e.qp, &attr, mask | IBV_QP_QKEY), EINVAL);
	attr.port_num = 2;
	assert_int_equal(ibv_modify_qp(e.qp, &attr, mask), EINVAL);
	attr.port_num = 1;
	assert_int_equal(ibv_modify_qp(e.qp, &attr, mask), 0);
	assert_int_equal(e.qp->state, IBV_QPS_INIT);
	for (int change = 1; change <= 8; change *= 2)
		assert_int_equal(to_rtr(change, 0), EINVAL);
	assert_int_equal(to_rtr(0, IBV_QP_RQ_PSN), EINVAL);
	assert_int_equal(modify_state(e.qp, IBV_QPS_RTS), EINVAL);
	assert_int_equal(to_rtr(0, 0), 0);
	assert_int_equal(modify_state(e.qp, IBV_QPS_RTS), EINVAL); /* lacks attributes */
	assert_int_equal(modify_state(e.qp, IBV_QPS_ERR), 0);
	assert_int_equal(modify_state(e.qp, IBV_QPS_RTS), EINVAL);
	assert_int_equal(modify_state(e.qp, IBV_QPS_RESET), 0);
}

static void query_tells_what_was_set(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)state;
	end_connect(&e, &e.gid, e.qp->qp_num);
	assert_int_equal(ibv_query_qp(e.qp, &attr, -1, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.path_mtu, IBV_MTU_4096);
	assert_int_equal(attr.dest_qp_num, e.qp->qp_num);
	assert_int_equal(attr.sq_psn, 0x123456);
	assert_int_equal(attr.rq_psn, 0x123456);
	assert_int_equal(attr.timeout, 8);
	assert_int_equal(attr.retry_cnt, 3);
	assert_int_equal(attr.ah_attr.grh.sgid_index, 1);
	assert_memory_equal(&attr.ah_attr.grh.dgid, &e.gid, 16);
	assert_int_equal(attr.cap.max_send_wr, 64);
	assert_ptr_equal(init.send_cq, e.scq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	/* 2 packets of WRITE, 3 of a READ's answer, 1 atomic. */
	post(&e, &e, IBV_WR_RDMA_WRITE, 0, 4097, 1);
	post(&e, &e, IBV_WR_RDMA_READ, 0, 8193, 2);
	post(&e, &e, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 3);
	for (int i = 1; i <= 3; i++)
		expect_wc(e.scq, i, IBV_WC_SUCCESS);
	assert_int_equal(ibv_query_qp(e.qp, &attr, -1, &init), 0);
	assert_int_equal(attr.rq_psn, 0x123456 + 6);
	assert_int_equal(attr.sq_psn, 0x123456 + 6);
}

static void psn_wraps(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)state;
	e.opt.mtu = IBV_MTU_256;
	end_connect(&e, &e.gid, e.qp->qp_num);
	/* 4096 packets each, 2^24 together. */
	for (int i = 0; i < 4096; i++) {
		post(&e, &e, IBV_WR_RDMA_WRITE, 0, 1 << 20, i);
		expect_wc(e.scq, i, IBV_WC_SUCCESS);
	}
	assert_int_equal(ibv_query_qp(e.qp, &attr, -1, &init), 0);
	assert_int_equal(attr.rq_psn, 0x123456);
}

static void gids_and_pkeys(void **state)
{
	struct ibv_gid_entry table[FAKE_MAX_GIDS + 1], entry;
	union ibv_gid gid;
	__be16 pkey;

	(void)state;
	assert_int_equal(ibv_query_gid(e.ctx, 1, 1, &gid), 0);
	assert_memory_equal(gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\1\1", 16);
	assert_int_equal(ibv_query_gid_ex(e.ctx, 1, 1, &entry, 0), 0);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(ibv_query_gid_ex(e.ctx, 1, 0, &entry, 0), 0);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V1);
	assert_int_equal(ibv_query_gid_ex(e.ctx, 1, 2, &entry, 0), ENODATA);
	assert_int_equal(ibv_query_gid_table(e.ctx, table, FAKE_MAX_GIDS + 1, 0), 2);
	assert_int_equal(ibv_query_pkey(e.ctx, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_query_pkey(e.ctx, 1, 1, &pkey), -1);
}

static void what_a_fake_cannot(void **state)
{
	(void)state;
	assert_null(ibv_alloc_mw(e.pd, IBV_MW_TYPE_2));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_alloc_dm(e.ctx, &(struct ibv_alloc_dm_attr){ .length = 64 }));
	assert_int_equal(errno, EOPNOTSUPP);
}

static void devices_can_be_opened_again_and_again(void **state)
{
	struct end more[3];

	(void)state;
	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 3; i++)
			end_open(&more[i], i ? "a1" : "a0", NULL);
		end_connect(&more[0], &more[1].gid, more[1].qp->qp_num);
		end_connect(&more[1], &more[0].gid, more[0].qp->qp_num);
		post(&more[0], &more[1], IBV_WR_RDMA_WRITE, 0, 8, 1);
		expect_wc(more[0].scq, 1, IBV_WC_SUCCESS);
		for (int i = 0; i < 3; i++)
			end_close(&more[i]);
	}
	assert_int_equal(fake_ctl_get("a1", FAKE_LIVE_QPS), 0);
	assert_int_equal(fake_ctl_get("a1", FAKE_LIVE_MRS), 0);
	assert_int_equal(fake_ctl_get("a1", FAKE_LIVE_PDS), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(in_use_cannot_be_destroyed),
		T(srq_in_use_cannot_be_destroyed),
		T(queue_pair_limits),
		T(completion_queue_limits),
		T(region_rights),
		T(transitions_are_checked),
		T(query_tells_what_was_set),
		T(psn_wraps),
		T(gids_and_pkeys),
		T(what_a_fake_cannot),
		T(devices_can_be_opened_again_and_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
