/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What most tests of the control channel begin with: a port, and two channels that are to each
 * other what two processes are, with a QP each. With cmocka.
 */
#ifndef TESTS_CTRL_TWO_H
#define TESTS_CTRL_TWO_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fake_qp.h"

#define A "127.0.0.1"
#define B "127.0.0.2"
#define SOON 3000	/* ms */

extern uint16_t port;
extern struct ctrl *x, *y;
extern struct fake_qp a, b;	/* QP 10 at A and QP 20 at B: each the other's peer; not up */

/* Without the channels: x and y are NULL. */
int port_setup(void **state);
int two_setup(void **state);
/* Ends what there is, and checks that no descriptor is left. */
int two_teardown(void **state);

#define port_test(name) cmocka_unit_test_setup_teardown(name, port_setup, two_teardown)
#define two_test(name) cmocka_unit_test_setup_teardown(name, two_setup, two_teardown)

void assert_ready(struct fake_qp *qp, unsigned int count, uint32_t mask);
/* a and b are up in x and y, and a pair. */
void two_pair(void);
void two_end(void);

#endif
