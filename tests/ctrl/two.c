/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Two control channels. See two.h.
 */
#include <signal.h>

#include "two.h"

uint16_t port;
struct ctrl *x, *y;
struct fake_qp a, b;
static int fds_before;

int port_setup(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	port = free_port();
	fake_warnings();
	fds_before = fds_open();
	x = NULL;
	y = NULL;
	fake_init(&a, A, 10, B, 20, 1);
	fake_init(&b, B, 20, A, 10, 1);
	return 0;
}

int two_setup(void **state)
{
	port_setup(state);
	x = fake_ctrl(port, NULL);
	y = fake_ctrl(port, NULL);
	return x && y ? 0 : -1;
}

void two_end(void)
{
	fake_end(&a);
	fake_end(&b);
	if (x)
		ctrl_destroy(x);
	if (y)
		ctrl_destroy(y);
	x = NULL;
	y = NULL;
}

int two_teardown(void **state)
{
	(void)state;
	two_end();
	assert_int_equal(fds_open(), fds_before);
	return 0;
}

void assert_ready(struct fake_qp *qp, unsigned int count, uint32_t mask)
{
	assert_true(fake_wait(qp, FAKE_READY, count, SOON));
	assert_int_equal(qp->mask, mask);
}

void two_pair(void)
{
	fake_up(x, &a);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
}
