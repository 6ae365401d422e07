/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The ends in two processes: the same operations, and what happens when the other process is slow,
 * takes its queue pair away or dies.
 *
 * The child owns b0 and does what one-letter commands on a socket tell it.
 */
#include "pair.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct hello {
	union ibv_gid gid;
	uint32_t qpn;
	uint32_t rkey;
	uint64_t addr;
};

static struct end a;
static struct end far; /* the child's, as far as addresses go */
static struct ibv_mr far_mr;
static int sock;
static pid_t child;

static void must(bool ok)
{
	if (!ok)
		_exit(1);
}

static void greet(struct end *e, struct hello *other)
{
	struct hello mine = { .gid = e->gid,
			      .qpn = e->qp->qp_num,
			      .rkey = e->mr->rkey,
			      .addr = (uintptr_t)e->buf };

	must(write(sock, &mine, sizeof(mine)) == sizeof(mine));
	must(read(sock, other, sizeof(*other)) == sizeof(*other));
}

static void child_main(const struct options *opt)
{
	struct hello other;
	struct ibv_wc wc;
	struct end b;
	char c;

	end_open(&b, "b0", opt);
	greet(&b, &other);
	end_connect(&b, &other.gid, other.qpn);
	must(write(sock, "k", 1) == 1);
	for (; read(sock, &c, 1) == 1; must(write(sock, &c, 1) == 1)) {
		switch (c) {
		case 'r':
			post_recv(&b, 0, 4096, 1);
			break;
		case 'w':
			wc = wait_wc(b.rcq);
			c = wc.status == IBV_WC_SUCCESS ? 'w' : '!';
			break;
		case 'e':
			expect_wc(b.rcq, 1, IBV_WC_SUCCESS);
			/* fall through */
		case 's':
			memset(b.buf + 5000, 0x55, 100);
			post(&b, NULL, IBV_WR_SEND, 5000, 100, 1);
			expect_wc(b.scq, 1, IBV_WC_SUCCESS);
			break;
		case 'd':
			must(!ibv_destroy_qp(b.qp));
			b.qp = NULL;
			break;
		case 'c': /* copies what it was sent back to another place */
			memcpy(b.buf + (BUF_BYTES / 2), b.buf, BUF_BYTES / 2);
			break;
		}
	}
	end_close(&b);
	_exit(0);
}

static int setup_with(const struct options *opt)
{
	struct hello other;
	int fds[2];
	char c;

	fake_ctl_zero_counters();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	child = fork();
	if (!child) {
		close(fds[0]);
		sock = fds[1];
		child_main(opt);
	}
	close(fds[1]);
	sock = fds[0];
	end_open(&a, "a0", opt);
	fill(a.buf, BUF_BYTES, 1);
	greet(&a, &other);
	end_connect(&a, &other.gid, other.qpn);
	far.buf = (void *)(uintptr_t)other.addr;
	far_mr.rkey = other.rkey;
	far.mr = &far_mr;
	assert_int_equal(read(sock, &c, 1), 1);
	return 0;
}

static int setup(void **state)
{
	const struct options opt = { .rnr_retry = 7, .timeout = 14, .retry_cnt = 7 };

	(void)state;
	return setup_with(&opt);
}

static int setup_short(void **state)
{
	const struct options opt = { .timeout = 10, .retry_cnt = 2 };

	(void)state;
	return setup_with(&opt);
}

static int teardown(void **state)
{
	int status;

	(void)state;
	fake_ctl_reset();
	close(sock);
	if (child)
		waitpid(child, &status, 0);
	end_close(&a);
	assert_true(!child || (WIFEXITED(status) && !WEXITSTATUS(status)));
	return 0;
}

static void tell(char c)
{
	char back;

	assert_int_equal(write(sock, &c, 1), 1);
	assert_int_equal(read(sock, &back, 1), 1);
	assert_int_equal(back, c);
}

static void write_and_read_back(void **state)
{
	uint8_t *want = malloc(BUF_BYTES / 2);

	(void)state;
	memcpy(want, a.buf, BUF_BYTES / 2);
	post(&a, &far, IBV_WR_RDMA_WRITE, 0, BUF_BYTES / 2, 1);
	expect_wc(a.scq, 1, IBV_WC_SUCCESS);
	tell('c');
	memset(a.buf, 0, BUF_BYTES);
	post(&a, &far, IBV_WR_RDMA_READ, BUF_BYTES / 2, BUF_BYTES / 2, 2);
	expect_wc(a.scq, 2, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf + BUF_BYTES / 2, want, BUF_BYTES / 2);
	free(want);
}

static void many_in_flight(void **state)
{
	struct ibv_wc wc;
	struct wr w;
	int posted = 0, done = 0;

	(void)state;
	while (done < 20000) {
		while (posted < 20000 && posted - done < 64) {
			wr_make(&w, &a, &far, posted % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
				posted % 64 * 64, 64);
			w.wr.wr_id = posted++;
			assert_int_equal(wr_post(&a, &w), 0);
		}
		if (ibv_poll_cq(a.scq, 1, &wc)) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, done++);
		}
	}
}

static void sends_both_ways(void **state)
{
	(void)state;
	post_recv(&a, 8192, 4096, 5);
	tell('r');
	post(&a, NULL, IBV_WR_SEND, 0, 4096, 1);
	expect_wc(a.scq, 1, IBV_WC_SUCCESS);
	tell('w');
	tell('s');
	expect_wc(a.rcq, 5, IBV_WC_SUCCESS);
	assert_int_equal(a.buf[8192], 0x55);
	assert_int_equal(a.buf[8192 + 99], 0x55);
}

static void sge_list_and_inline(void **state)
{
	struct ibv_sge sge[3] = { { (uintptr_t)a.buf, 3, a.mr->lkey },
				  { (uintptr_t)a.buf + 1000, 70000, a.mr->lkey },
				  { (uintptr_t)a.buf + 100, 5, a.mr->lkey } };
	struct wr w;

	(void)state;
	wr_make(&w, &a, &far, IBV_WR_RDMA_WRITE, 0, 0);
	w.wr.sg_list = sge;
	w.wr.num_sge = 3;
	assert_int_equal(wr_post(&a, &w), 0);
	wr_make(&w, &a, &far, IBV_WR_RDMA_WRITE, 100000, 64);
	w.wr.send_flags |= IBV_SEND_INLINE;
	assert_int_equal(wr_post(&a, &w), 0);
	post(&a, &far, IBV_WR_RDMA_READ, 200000, 8, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(wait_wc(a.scq).status, IBV_WC_SUCCESS);
	wr_make(&w, &a, &far, IBV_WR_RDMA_READ, 300000, 70008);
	w.wr.wr.rdma.remote_addr = (uintptr_t)far.buf;
	assert_int_equal(wr_post(&a, &w), 0);
	expect_wc(a.scq, 0, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf + 300000, a.buf, 3);
	assert_memory_equal(a.buf + 300003, a.buf + 1000, 70000);
	assert_memory_equal(a.buf + 370003, a.buf + 100, 5);
}

static void atomics(void **state)
{
	struct wr w;

	(void)state;
	memset(a.buf, 0, 8);
	post(&a, &far, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_wc(a.scq, 1, IBV_WC_SUCCESS);
	for (int i = 0; i < 10; i++) {
		wr_make(&w, &a, &far, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8);
		w.wr.wr.atomic.compare_add = 3;
		assert_int_equal(wr_post(&a, &w), 0);
		expect_wc(a.scq, 0, IBV_WC_SUCCESS);
		assert_int_equal(*(uint64_t *)(void *)a.buf, 3 * i);
	}
}

static void receive_posted_late(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		post(&a, i == 0 ? NULL : &far, i == 0 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, 0, 64, i);
	expect_none(a.scq, 20);
	tell('r');
	for (int i = 0; i < 5; i++)
		expect_wc(a.scq, i, IBV_WC_SUCCESS);
}

static void error_in_the_middle(void **state)
{
	struct wr w;

	(void)state;
	for (int i = 0; i < 10; i++) {
		wr_make(&w, &a, &far, IBV_WR_RDMA_WRITE, i * 64, 64);
		w.wr.wr_id = i;
		w.wr.wr.rdma.rkey ^= i == 4 ? 0x10000 : 0;
		assert_int_equal(wr_post(&a, &w), 0);
	}
	for (int i = 0; i < 10; i++)
		expect_wc(a.scq, i,
			  i < 4	 ? IBV_WC_SUCCESS :
			  i == 4 ? IBV_WC_REM_ACCESS_ERR :
				   IBV_WC_WR_FLUSH_ERR);
	expect_none(a.scq, 5);
}

static void peer_destroys_its_queue_pair(void **state)
{
	(void)state;
	tell('d');
	for (int i = 0; i < 5; i++)
		post(&a, &far, IBV_WR_RDMA_WRITE, 0, 64, i);
	for (int i = 0; i < 5; i++)
		expect_wc(a.scq, i, i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
}

/* kill() returns before the signal has stopped anything. */
static void stop_child(void)
{
	int status;

	assert_int_equal(kill(child, SIGSTOP), 0);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
}

static void kill_child(void)
{
	assert_int_equal(kill(child, SIGKILL), 0);
	waitpid(child, NULL, 0);
	child = 0;
}

static void post_five_to_the_dead(void)
{
	for (int i = 0; i < 5; i++)
		post(&a, &far, IBV_WR_RDMA_WRITE, 0, 64, i);
}

static void expect_five_failures(void)
{
	for (int i = 0; i < 5; i++)
		expect_wc(a.scq, i, i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
}

static void peer_dies(void **state)
{
	(void)state;
	post(&a, &far, IBV_WR_RDMA_WRITE, 0, 64, 9);
	expect_wc(a.scq, 9, IBV_WC_SUCCESS);
	kill_child();
	post_five_to_the_dead();
	expect_five_failures();
}

static void peer_dies_with_work_in_hand(void **state)
{
	(void)state;
	post(&a, &far, IBV_WR_RDMA_WRITE, 0, 64, 9);
	expect_wc(a.scq, 9, IBV_WC_SUCCESS);
	stop_child();
	post_five_to_the_dead();
	usleep(20000);
	kill_child();
	expect_five_failures();
}

/* The answer to a message does not overtake the acknowledgement of that message. */
static void completion_comes_before_the_reply(void **state)
{
	struct ibv_wc wc;
	char c;

	(void)state;
	for (int i = 0; i < 300; i++) {
		post_recv(&a, 8192, 4096, 5);
		tell('r');
		assert_int_equal(write(sock, "e", 1), 1);
		post(&a, NULL, IBV_WR_SEND, 0, 64, 1);
		expect_wc(a.rcq, 5, IBV_WC_SUCCESS);
		assert_int_equal(ibv_poll_cq(a.scq, 1, &wc), 1);
		assert_int_equal(read(sock, &c, 1), 1);
	}
}

static void expect_untouched(void)
{
	memset(a.buf, 0x77, BUF_BYTES);
	usleep(30000);
	for (uint32_t i = 0; i < BUF_BYTES; i++)
		if (a.buf[i] != 0x77)
			fail_msg("written at %u", i);
}

/* Nothing writes into the buffer of a READ once its queue pair is gone. */
static void reads_in_flight_when_destroyed(void **state)
{
	(void)state;
	for (int i = 0; i < 16; i++)
		post(&a, &far, IBV_WR_RDMA_READ, 0, BUF_BYTES, i);
	while (!fake_ctl_get("b0", FAKE_RX_READ))
		;
	assert_int_equal(ibv_destroy_qp(a.qp), 0);
	a.qp = NULL;
	expect_untouched();
}

/* Nor once it is flushed, which waits for a process that may still write. */
static void reads_in_flight_when_flushed(void **state)
{
	(void)state;
	post(&a, &far, IBV_WR_RDMA_WRITE, 0, 8, 99);
	expect_wc(a.scq, 99, IBV_WC_SUCCESS);
	stop_child();
	for (int i = 0; i < 16; i++)
		post(&a, &far, IBV_WR_RDMA_READ, 0, BUF_BYTES, i);
	usleep(30000);
	assert_int_equal(modify_state(a.qp, IBV_QPS_ERR), 0);
	expect_none(a.scq, 20);
	assert_int_equal(kill(child, SIGCONT), 0);
	for (int i = 0; i < 16; i++)
		assert_int_equal(wait_wc(a.scq).wr_id, i);
	expect_untouched();
}

int main(void)
{
#define T(f, setup) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(write_and_read_back, setup),
		T(many_in_flight, setup),
		T(sends_both_ways, setup),
		T(sge_list_and_inline, setup),
		T(atomics, setup),
		T(receive_posted_late, setup),
		T(error_in_the_middle, setup),
		T(peer_destroys_its_queue_pair, setup_short),
		T(peer_dies, setup_short),
		T(peer_dies_with_work_in_hand, setup_short),
		T(completion_comes_before_the_reply, setup),
		T(reads_in_flight_when_destroyed, setup),
		T(reads_in_flight_when_flushed, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
