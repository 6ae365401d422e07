/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Not a benchmark: 100,000 WRITEs of 64 KiB, fifteen unsignalled and one signalled in an SQ of 16,
 * as the tests of the bond do them, must not take so long that nobody runs them.
 */
#include "pair.h"

#include <stdio.h>

#define NUM_WR 100000
#define WR_BYTES 65536
/* Sanitizers and other work on the machine included. */
#define MAX_S 60.0

int main(void)
{
	const struct options opt = { .send_wr = 16, .cqe = 1 };
	double start, took;
	struct pair p;
	struct wr w;

	pair_open(&p, &opt);
	fill(p.a.buf, BUF_BYTES, 1);
	start = now_s();
	for (int i = 0; i < NUM_WR; i++) {
		wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, i % 16 * WR_BYTES, WR_BYTES);
		w.wr.send_flags = i % 16 == 15 ? IBV_SEND_SIGNALED : 0;
		w.wr.wr_id = i;
		if (wr_post(&p.a, &w)) {
			printf("WR %d was not accepted\n", i);
			return 1;
		}
		if (i % 16 == 15)
			expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	}
	took = now_s() - start;
	printf("%d WRs of %d bytes in %.2f s\n", NUM_WR, WR_BYTES, took);
	if (memcmp(p.a.buf, p.b.buf, BUF_BYTES))
		return 1;
	pair_close(&p);
	return took > MAX_S;
}
