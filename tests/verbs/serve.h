/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The message between a test and an end. One struct for call and answer; both ends are always
 * the same program, so it crosses the socket as it is.
 */
#ifndef VERBS_SERVE_H
#define VERBS_SERVE_H

#include "end.h"

enum end_cmd {
	END_OPEN,
	END_CLOSE,
	END_PD_ALLOC,
	END_PD_DEALLOC,
	END_MR_REG,
	END_MR_DEREG,
	END_CQ_CREATE,
	END_CQ_DESTROY,
	END_QP_CREATE,
	END_QP_DESTROY,
	END_QP_NUM,
	END_QP_MODIFY,
	END_QP_STATE,
	END_POST_RECV,
	END_POST_SEND,
	END_POLL,
	END_EVENT,
	END_SLEEP,
};

struct end_msg {
	enum end_cmd cmd;
	int id;
	int n;
	int err;
	union {
		struct {
			char dev[64];
			char error[128];
			int gid_index;
			uint8_t *base;
			union ibv_gid gid;
			struct ibv_device_attr attr;
			struct ibv_port_attr port;
		} open;
		struct {
			int pd;
			int access;
			uint64_t off;
			uint64_t len;
			struct end_keys keys;
		} mr;
		struct {
			struct qp_spec spec;
		} qp;
		struct {
			struct ibv_qp_attr attr;
			int mask;
		} modify;
		struct {
			unsigned int timeout_ms;
			struct ibv_wc wc[END_WCS];
		} poll;
		struct {
			unsigned int timeout_ms;
			enum ibv_event_type type;
			int qp;
		} event;
		struct end_recv recv[END_RECVS];
		struct end_send send;
	};
};

void end_serve(struct end_objs *o, uint8_t *base, struct end_msg *m);

#endif
