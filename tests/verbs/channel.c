/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion channels: one event per arming, when a completion can be seen; none lost, none
 * invented; two CQs on one channel; solicited only; poll, epoll and a blocking wait on the
 * descriptor, which is put into epoll before any CQ is on the channel.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "end.h"

enum {
	SEND_CQ = 1,
	RECV_CQ = 2,
	LATE_CQ = 3,
	LATE_QP = 5,
	DEPTH_WR = 16,
	SMALL_LEN = 64,
	LARGE_LEN = 4 << 20,
	ARENA_LEN = 8 << 20,
	QUIET_MS = 50,
	ACK_BATCH = 7,
};

static uint64_t opt_rounds = 10000;

static const struct opt_row rows[] = {
	{ "rounds", OPT_SIZE, &opt_rounds, "events of the long run (10000)" },
	{ 0 },
};

static struct pair pair;
static struct end_keys keys_a, keys_b;
static struct ibv_comp_channel *channel;
static int epoll_fd;
static int send_tag, recv_tag;		/* their addresses are the CQs' contexts */

static struct ibv_cq *cq_on_channel(int id, void *tag)
{
	struct ibv_cq *cq = ibv_create_cq(pair.a.objs->ctx, 2 * DEPTH_WR, tag, channel, 0);

	if (!cq)
		die("create_cq with a channel: %s", strerror(errno));
	pair.a.objs->cq[id] = cq;
	return cq;
}

static void set_up(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec spec = {
		.cap = { .max_send_wr = DEPTH_WR, .max_recv_wr = DEPTH_WR, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	}, at_a = spec;
	struct epoll_event ev = { .events = EPOLLIN };

	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, 2 * DEPTH_WR, &keys_a, &keys_b);
	channel = ibv_create_comp_channel(pair.a.objs->ctx);
	if (!channel)
		die("create_comp_channel: %s", strerror(errno));
	/* Before the first CQ: a device may exchange what is behind the descriptor. */
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ev.data.ptr = channel;
	if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, channel->fd, &ev) ||
	    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK))
		die("epoll or fcntl on the channel: %s", strerror(errno));
	cq_on_channel(SEND_CQ, &send_tag);
	cq_on_channel(RECV_CQ, &recv_tag);
	at_a.send_cq = SEND_CQ;
	at_a.recv_cq = RECV_CQ;
	MUST(end_qp_create(&pair.a, 0, &at_a));
	MUST(end_qp_create(&pair.b, 0, &spec));
	MUST(pair_connect(&pair, 0, 0, &conn));
}

static bool readable(unsigned int ms, bool by_epoll)
{
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };
	struct epoll_event ev;

	if (!by_epoll)
		return poll(&pfd, 1, ms) == 1;
	return epoll_wait(epoll_fd, &ev, 1, ms) == 1 && ev.data.ptr == channel;
}

static void arm(int cq, bool solicited_only)
{
	EXPECT_OK(ibv_req_notify_cq(pair.a.objs->cq[cq], solicited_only));
}

/* The next event, which must be of this CQ; not acknowledged. */
static bool take_event(int cq, bool by_epoll)
{
	struct ibv_cq *got;
	void *tag;

	if (!readable(opts.wait_ms, by_epoll)) {
		case_fail("no event of CQ %d in %u ms", cq, opts.wait_ms);
		return false;
	}
	if (ibv_get_cq_event(channel, &got, &tag)) {
		case_fail("get_cq_event: %s", strerror(errno));
		return false;
	}
	EXPECT(got == pair.a.objs->cq[cq], "event of another CQ, must be CQ %d", cq);
	EXPECT(tag == (cq == SEND_CQ ? &send_tag : &recv_tag), "cq_context of another CQ");
	return true;
}

static void expect_no_event(const char *when)
{
	struct ibv_cq *cq;
	void *tag;

	EXPECT(!readable(QUIET_MS, false), "the descriptor is readable %s", when);
	if (!ibv_get_cq_event(channel, &cq, &tag)) {
		case_fail("an event %s", when);
		/* Or destroy_cq would wait for it. */
		ibv_ack_cq_events(cq, 1);
		return;
	}
	EXPECT(errno == EAGAIN || errno == EWOULDBLOCK, "get_cq_event says %s %s",
	       strerror(errno), when);
}

static void write_to_b(uint32_t len)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, len, keys_a.lkey);
	struct ibv_send_wr wr = wr_make(len, IBV_WR_RDMA_WRITE, &sge, &pair.b, 0, keys_b.rkey);

	EXPECT_OK(post_one(pair.a.objs->qp[0], &wr));
}

static void send_to_a(unsigned int flags)
{
	struct end_recv recv = { .num_sge = 1 };
	struct end_send send = { .opcode = IBV_WR_SEND, .num_sge = 1 };

	recv.sge[0] = sge_at(&pair.a, LARGE_LEN, SMALL_LEN, keys_a.lkey);
	send.sge[0] = sge_at(&pair.b, LARGE_LEN, SMALL_LEN, keys_b.lkey);
	send.flags = flags | IBV_SEND_SIGNALED;
	EXPECT_OK(end_post_recv(&pair.a, 0, &recv, 1));
	EXPECT_OK(end_post_send(&pair.b, 0, &send));
	wait_good(&pair.b, 0, 1);
}

static void test_one_per_arming(void)
{
	int i;

	case_begin("one event per arming");
	expect_no_event("before anything was posted");
	write_to_b(SMALL_LEN);
	wait_good(&pair.a, SEND_CQ, 1);
	expect_no_event("after a completion without arming");
	arm(SEND_CQ, false);
	expect_no_event("after arming alone");
	for (i = 0; i < 4; i++)
		write_to_b(SMALL_LEN);
	if (take_event(SEND_CQ, false)) {
		ibv_ack_cq_events(pair.a.objs->cq[SEND_CQ], 1);
		wait_good(&pair.a, SEND_CQ, 4);
		expect_no_event("a second time");
	}
	/* Twice armed is armed once. */
	arm(SEND_CQ, false);
	arm(SEND_CQ, false);
	write_to_b(SMALL_LEN);
	if (take_event(SEND_CQ, false)) {
		ibv_ack_cq_events(pair.a.objs->cq[SEND_CQ], 1);
		wait_good(&pair.a, SEND_CQ, 1);
		expect_no_event("a second time after arming twice");
	}
	case_end();
}

/* The event says that there is a completion: it must be seen at once, without waiting. */
static void test_large(void)
{
	int round, rounds = opts.quick ? 3 : 20;

	case_begin("event of a WRITE of %d bytes", LARGE_LEN);
	for (round = 0; round < rounds && !case_failed(); round++) {
		struct ibv_wc wc;

		arm(SEND_CQ, false);
		write_to_b(LARGE_LEN);
		if (!take_event(SEND_CQ, round & 1))
			break;
		ibv_ack_cq_events(pair.a.objs->cq[SEND_CQ], 1);
		EXPECT(ibv_poll_cq(pair.a.objs->cq[SEND_CQ], 1, &wc) == 1 && !wc.status,
		       "round %d: an event, but no completion", round);
	}
	case_end();
}

static void test_none_lost(void)
{
	unsigned int unacked[2] = { 0, 0 };
	struct rng r = { opts.seed };
	uint64_t round;

	case_begin("%llu rounds of arm, post, wait, none lost", (unsigned long long)opt_rounds);
	for (round = 0; round < opt_rounds && !case_failed(); round++) {
		bool recv = rng_one_in(&r, 8);
		int cq = recv ? RECV_CQ : SEND_CQ;
		struct ibv_wc wc;

		arm(cq, false);
		if (recv)
			send_to_a(0);
		else
			write_to_b(rng_one_in(&r, 64) ? 256 << 10 : SMALL_LEN);
		if (!take_event(cq, round & 1)) {
			case_fail("  that was round %llu", (unsigned long long)round);
			break;
		}
		EXPECT(ibv_poll_cq(pair.a.objs->cq[cq], 1, &wc) == 1 && !wc.status,
		       "round %llu: an event, but no completion", (unsigned long long)round);
		if (++unacked[recv] == ACK_BATCH) {
			ibv_ack_cq_events(pair.a.objs->cq[cq], ACK_BATCH);
			unacked[recv] = 0;
		}
	}
	ibv_ack_cq_events(pair.a.objs->cq[SEND_CQ], unacked[0]);
	ibv_ack_cq_events(pair.a.objs->cq[RECV_CQ], unacked[1]);
	case_end();
}

/* The loop that every event-driven application has: arm, then look again, then wait. */
static void test_pipeline(void)
{
	uint64_t total = opts.quick ? 500 : 5000, posted = 0, seen = 0;
	struct ibv_wc wc[DEPTH_WR];
	int n, i;

	case_begin("%llu WRITEs by events, up to %d in flight", (unsigned long long)total,
		   DEPTH_WR);
	while (seen < total && !case_failed()) {
		while (posted < total && posted - seen < DEPTH_WR) {
			write_to_b(posted % 16 ? SMALL_LEN : 64 << 10);
			posted++;
		}
		arm(SEND_CQ, false);
		n = ibv_poll_cq(pair.a.objs->cq[SEND_CQ], DEPTH_WR, wc);
		if (!n && take_event(SEND_CQ, false)) {
			ibv_ack_cq_events(pair.a.objs->cq[SEND_CQ], 1);
			n = ibv_poll_cq(pair.a.objs->cq[SEND_CQ], DEPTH_WR, wc);
		}
		for (i = 0; i < n; i++)
			EXPECT(!wc[i].status, "WRITE: %s", ibv_wc_status_str(wc[i].status));
		seen += n > 0 ? n : 0;
	}
	/* The last arming may have fired for a completion that was polled already. */
	while (readable(QUIET_MS, false) && take_event(SEND_CQ, false))
		ibv_ack_cq_events(pair.a.objs->cq[SEND_CQ], 1);
	/* And if it did not, it still stands: use it up. */
	write_to_b(SMALL_LEN);
	wait_good(&pair.a, SEND_CQ, 1);
	while (readable(QUIET_MS, false) && take_event(SEND_CQ, false))
		ibv_ack_cq_events(pair.a.objs->cq[SEND_CQ], 1);
	case_end();
}

static void test_both_cqs(void)
{
	bool seen[2] = { false, false };
	struct ibv_cq *cq;
	void *tag;
	int i;

	case_begin("both CQs on one channel");
	arm(SEND_CQ, false);
	arm(RECV_CQ, false);
	send_to_a(0);
	write_to_b(LARGE_LEN);
	for (i = 0; i < 2 && !case_failed(); i++) {
		if (!readable(opts.wait_ms, true) || ibv_get_cq_event(channel, &cq, &tag)) {
			case_fail("event %d of 2 is missing", i + 1);
			break;
		}
		seen[tag == &recv_tag] = true;
		EXPECT(cq == pair.a.objs->cq[tag == &recv_tag ? RECV_CQ : SEND_CQ],
		       "cq and cq_context do not belong together");
		ibv_ack_cq_events(cq, 1);
	}
	EXPECT(seen[0] && seen[1], "both events are of one CQ");
	wait_good(&pair.a, SEND_CQ, 1);
	wait_good(&pair.a, RECV_CQ, 1);
	expect_no_event("after both");
	case_end();
}

static void test_solicited(void)
{
	case_begin("solicited only");
	arm(RECV_CQ, true);
	send_to_a(0);
	wait_good(&pair.a, RECV_CQ, 1);
	expect_no_event("after a message without IBV_SEND_SOLICITED");
	send_to_a(IBV_SEND_SOLICITED);
	if (take_event(RECV_CQ, false))
		ibv_ack_cq_events(pair.a.objs->cq[RECV_CQ], 1);
	wait_good(&pair.a, RECV_CQ, 1);
	/* Armed for any after solicited only: any counts. */
	arm(RECV_CQ, true);
	arm(RECV_CQ, false);
	send_to_a(0);
	if (take_event(RECV_CQ, false))
		ibv_ack_cq_events(pair.a.objs->cq[RECV_CQ], 1);
	wait_good(&pair.a, RECV_CQ, 1);
	case_end();
}

struct waiter {
	struct ibv_cq *cq;
	void *tag;
	int err;
};

static void *wait_blocking(void *arg)
{
	struct waiter *w = arg;

	w->err = ibv_get_cq_event(channel, &w->cq, &w->tag) ? errno : 0;
	return NULL;
}

static void test_blocking(void)
{
	struct waiter w = { 0 };
	pthread_t thread;

	case_begin("a thread that waits in get_cq_event");
	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) & ~O_NONBLOCK);
	arm(SEND_CQ, false);
	if (pthread_create(&thread, NULL, wait_blocking, &w))
		die("pthread_create");
	sleep_us(20000);
	write_to_b(LARGE_LEN);
	pthread_join(thread, NULL);
	EXPECT(!w.err && w.cq == pair.a.objs->cq[SEND_CQ] && w.tag == &send_tag,
	       "get_cq_event: %s, or another CQ", strerror(w.err));
	if (!w.err)
		ibv_ack_cq_events(w.cq, 1);
	wait_good(&pair.a, SEND_CQ, 1);
	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	case_end();
}

static atomic_bool destroy_done;

static void *destroy_late(void *arg)
{
	(void)arg;
	EXPECT_OK(ibv_destroy_cq(pair.a.objs->cq[LATE_CQ]));
	pair.a.objs->cq[LATE_CQ] = NULL;
	atomic_store(&destroy_done, true);
	return NULL;
}

/* ibv_destroy_cq waits for events that were taken and not yet acknowledged. */
static void test_destroy_waits(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec spec = { .send_cq = LATE_CQ, .recv_cq = LATE_CQ,
				.cap = { .max_send_wr = 4, .max_recv_wr = 4 } };
	struct qp_spec at_b = { .cap = { .max_send_wr = 4, .max_recv_wr = 4 } };
	struct ibv_send_wr wr = wr_make(1, IBV_WR_RDMA_WRITE, NULL, &pair.b, 0, keys_b.rkey);
	struct ibv_cq *cq = cq_on_channel(LATE_CQ, &recv_tag);
	pthread_t thread;

	case_begin("destroy_cq waits for the acknowledgement of an event");
	MUST(end_qp_create(&pair.a, 1, &spec));
	MUST(end_qp_create(&pair.b, 1, &at_b));
	MUST(pair_connect(&pair, 1, 1, &conn));
	arm(LATE_CQ, false);
	EXPECT_OK(post_one(pair.a.objs->qp[1], &wr));
	if (take_event(LATE_CQ, false)) {
		wait_good(&pair.a, LATE_CQ, 1);
		MUST(end_qp_destroy(&pair.a, 1));
		MUST(end_qp_destroy(&pair.b, 1));
		if (pthread_create(&thread, NULL, destroy_late, NULL))
			die("pthread_create");
		sleep_us(100000);
		EXPECT(!atomic_load(&destroy_done),
		       "it returned before the acknowledgement");
		ibv_ack_cq_events(cq, 1);
		pthread_join(thread, NULL);
	}
	case_end();
}

/* An event that was there, but not taken, goes with its CQ. */
static void test_destroy_drops(void)
{
	case_begin("destroy of CQs with an event not taken, then of the channel");
	arm(SEND_CQ, false);
	write_to_b(SMALL_LEN);
	wait_good(&pair.a, SEND_CQ, 1);
	sleep_us(50000);
	EXPECT(ibv_destroy_comp_channel(channel) == EBUSY, "the channel goes with CQs on it");
	MUST(end_qp_destroy(&pair.a, 0));
	EXPECT_OK(end_cq_destroy(&pair.a, SEND_CQ));
	EXPECT_OK(end_cq_destroy(&pair.a, RECV_CQ));
	expect_no_event("after its CQ is gone");
	EXPECT_OK(ibv_destroy_comp_channel(channel));
	case_end();
}

/* The drain of those who wait for their last completion: posted in ERR, it is flushed, and told. */
static void test_flushed(void)
{
	struct qp_spec spec = { .recv_cq = LATE_CQ, .send_cq = LATE_CQ,
				.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1,
					 .max_recv_sge = 1 } };
	struct ibv_send_wr wr = wr_make(7, IBV_WR_RDMA_WRITE, NULL, &pair.b, 0, keys_b.rkey);
	struct ibv_wc wc;
	int round;

	case_begin("event of a WR posted in ERR");
	cq_on_channel(LATE_CQ, &recv_tag);
	MUST(end_qp_create(&pair.a, LATE_QP, &spec));
	MUST(end_to_init(&pair.a, LATE_QP, ALL_ACCESS));
	MUST(end_qp_to(&pair.a, LATE_QP, IBV_QPS_ERR));
	for (round = 0; round < 10 && !case_failed(); round++) {
		wait_none(&pair.a, LATE_CQ, QUIET_MS);
		MUST(ibv_req_notify_cq(pair.a.objs->cq[LATE_CQ], 0));
		EXPECT_OK(post_one(pair.a.objs->qp[LATE_QP], &wr));
		if (take_event(LATE_CQ, false))
			ibv_ack_cq_events(pair.a.objs->cq[LATE_CQ], 1);
		EXPECT(end_poll(&pair.a, LATE_CQ, &wc, 1, opts.wait_ms) == 1 && wc.wr_id == 7 &&
		       wc.status == IBV_WC_WR_FLUSH_ERR, "no flushed completion");
	}
	MUST(end_qp_destroy(&pair.a, LATE_QP));
	MUST(end_cq_destroy(&pair.a, LATE_CQ));
	case_end();
}

/*
 * Takes and acknowledges events until one of the last CQ comes. What is read of a CQ that is being
 * destroyed must still be a CQ.
 */
static void *read_events(void *arg)
{
	struct ibv_comp_channel *own = arg;
	struct ibv_cq *cq;
	void *context;

	do {
		if (ibv_get_cq_event(own, &cq, &context))
			return NULL;
		ibv_ack_cq_events(cq, 1);
	} while (context != &recv_tag);
	return own;
}

static void cq_with_event(struct ibv_comp_channel *own, void *tag)
{
	struct qp_spec spec = { .recv_cq = LATE_CQ, .send_cq = LATE_CQ,
				.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1,
					 .max_recv_sge = 1 } };
	struct end_recv recv = { .num_sge = 0 };
	struct ibv_cq *cq = ibv_create_cq(pair.a.objs->ctx, 4, tag, own, 0);

	if (!cq)
		die("create_cq with a channel: %s", strerror(errno));
	pair.a.objs->cq[LATE_CQ] = cq;
	MUST(ibv_req_notify_cq(cq, 0));
	MUST(end_qp_create(&pair.a, LATE_QP, &spec));
	MUST(end_to_init(&pair.a, LATE_QP, ALL_ACCESS));
	MUST(end_post_recv(&pair.a, LATE_QP, &recv, 1));
	MUST(end_qp_to(&pair.a, LATE_QP, IBV_QPS_ERR));
}

static void test_destroy_while_read(void)
{
	int round, rounds = opts.quick ? 50 : 500;
	struct ibv_comp_channel *own = ibv_create_comp_channel(pair.a.objs->ctx);
	void *last = NULL;
	pthread_t thread;

	case_begin("CQs destroyed while another thread reads their channel");
	if (!own)
		die("create_comp_channel: %s", strerror(errno));
	/* A device may exchange the descriptor at the first CQ: nobody waits on it before. */
	if (ibv_destroy_cq(ibv_create_cq(pair.a.objs->ctx, 4, NULL, own, 0)))
		die("a first CQ");
	if (pthread_create(&thread, NULL, read_events, own))
		die("pthread_create");
	for (round = 0; round < rounds; round++) {
		cq_with_event(own, &send_tag);
		/* The event is on its way, in the channel, or with the thread. */
		if (round % 3)
			sleep_us(round % 50 * 10);
		MUST(end_qp_destroy(&pair.a, LATE_QP));
		MUST(end_cq_destroy(&pair.a, LATE_CQ));
	}
	cq_with_event(own, &recv_tag);
	pthread_join(thread, &last);
	EXPECT(last == own, "reading ended with %s", strerror(errno));
	MUST(end_qp_destroy(&pair.a, LATE_QP));
	MUST(end_cq_destroy(&pair.a, LATE_CQ));
	EXPECT_OK(ibv_destroy_comp_channel(own));
	case_end();
}

int main(int argc, char **argv)
{
	opts_parse(argc, argv, "completion channels", rows);
	if (opts.quick)
		opt_rounds /= 10;
	set_up();
	test_one_per_arming();
	test_large();
	test_none_lost();
	test_pipeline();
	test_both_cqs();
	test_solicited();
	test_blocking();
	test_destroy_waits();
	test_destroy_while_read();
	test_flushed();
	test_destroy_drops();
	close(epoll_fd);
	pair_close(&pair);
	return report();
}
