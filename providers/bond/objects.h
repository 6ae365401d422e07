/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The verbs operations, by the file that has them; context.c puts them into the table. */
#ifndef BOND_OBJECTS_H
#define BOND_OBJECTS_H

#include "bond.h"

/* caps.c */
int bond_query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t attr_size);
int bond_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
int bond_query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *values);

/* pd.c */
struct ibv_pd *bond_alloc_pd(struct ibv_context *ctx);
int bond_dealloc_pd(struct ibv_pd *pd);
struct ibv_pd *bond_alloc_parent_domain(struct ibv_context *ctx,
					struct ibv_parent_domain_init_attr *attr);
struct ibv_td *bond_alloc_td(struct ibv_context *ctx, struct ibv_td_init_attr *attr);
int bond_dealloc_td(struct ibv_td *td);
struct ibv_ah *bond_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int bond_destroy_ah(struct ibv_ah *ah);
/* The PD whose members' PDs count: a parent domain's own is the one inside it. */
struct bond_pd *bond_pd_real(struct ibv_pd *pd);

/* mr.c */
struct ibv_mr *bond_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va,
			   int access);
struct ibv_mr *bond_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				  int fd, int access);
int bond_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		  int access);
int bond_dereg_mr(struct verbs_mr *vmr);
struct ibv_mr *bond_alloc_null_mr(struct ibv_pd *pd);
int bond_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		   struct ibv_sge *sg_list, uint32_t num_sge);
/* The MR of key domain @pd_id that has this rkey and remote rights; false: none. */
bool bond_mr_region(uint64_t pd_id, uint32_t rkey, struct rkey_region *region);
/* rkeys of such MRs, at most @max; returns how many. */
unsigned int bond_mr_list(uint64_t pd_id, uint32_t *rkeys, unsigned int max);

/* mw.c */
struct ibv_mw *bond_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int bond_dealloc_mw(struct ibv_mw *mw);
int bond_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
/* To the primary's MR. */
void bond_bind_info(struct ibv_mw_bind_info *info);
/* sq_lock held: keeps a bind, and posts it later. 0 or a positive errno. */
void bond_bind_save(struct bond_qp *qp, uint32_t seq, const struct ibv_send_wr *from);
int bond_bind_post(struct bond_qp *qp, uint32_t seq, uint64_t wr_id);

/* cq.c */
struct ibv_cq *bond_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *channel,
			      int comp_vector);
struct ibv_cq_ex *bond_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr);
int bond_resize_cq(struct ibv_cq *cq, int cqe);
int bond_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int bond_destroy_cq(struct ibv_cq *cq);
/* The CQ for @member's pieces under @cq, made at first use; NULL with errno set. */
struct mcq *bond_cq_member(struct bond_cq *cq, unsigned int member);

/* cq_ex.c */
void bond_cq_ex_init(struct bond_cq *cq, uint64_t wc_flags);

/* poll.c */
int bond_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
/* One completion, with the CQ's lock held by the caller; 0: none. */
int bond_poll_one(struct bond_cq *cq, struct ibv_wc *wc);
/* Progress thread: takes what the members have into the CQ, so that held work moves on. */
void bond_cq_progress(struct bond_cq *cq);
/* CQ lock held: a completion that is the application's at the next poll. There is room. */
void bond_cq_soft(struct bond_cq *cq, const struct ibv_wc *wc);
/* CQ lock held: the QP has something to report. */
void bond_cq_ready(struct bond_cq *cq, struct bond_qp *qp);
/* CQ lock held: something is there that a poll would return. */
bool bond_cq_visible(const struct bond_cq *cq);
/* sq_lock or none held: the QP has something to report that no member's CQ will bring. */
void bond_qp_attention(struct bond_qp *qp);
/* A path's QPN is out of the member's table: also out of the CQ's memory of the last one. */
void bond_cq_forget_paths(struct bond_cq *cq);
void bond_cq_forget_qp(struct bond_cq *cq, struct bond_qp *qp);

/* channel.c */
int bond_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int bond_channel_get(struct bond_context *bctx, struct bond_cq *cq,
		     struct ibv_comp_channel *channel);
void bond_channel_put(struct bond_context *bctx, struct bond_cq *cq);
/* The context goes. */
void bond_channels_close(struct bond_context *bctx);
/* CQ lock held: an armed member CQ fired, or is new. */
void bond_cq_look(struct mcq *mcq);
/*
 * CQ lock held: wake the application if it asked for it and there is something to see; @primary:
 * the primary's CQ has spoken.
 */
void bond_cq_notify_due(struct bond_cq *cq, bool primary);
/* CQ lock held: arms the members' CQs that came after the application armed its own. */
void bond_cq_arm_new(struct bond_cq *cq);

/* srq.c */
struct ibv_srq *bond_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *bond_create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr);
int bond_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int bond_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int bond_destroy_srq(struct ibv_srq *srq);
int bond_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
int bond_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
/* SRQ wr_ids are ours: the application's comes back, the entry is free again. */
bool bond_srq_is_tag(uint64_t wr_id);
uint64_t bond_srq_complete(struct bond_srq *srq, uint64_t tag);

/* qp.c */
struct ibv_qp *bond_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *bond_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr);
int bond_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init_attr);
/*
 * Before a QP is destroyed or RESET: with it a member drops the completions that nobody has polled,
 * and the tags of the receives among them would be lost to the SRQ. So they are taken, as far as
 * there is room; those of other QPs wait in the CQ's own queue.
 */
void bond_qp_take_srq(struct bond_qp *qp);
int bond_destroy_qp(struct ibv_qp *qp);
int bond_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);
int bond_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int bond_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int bond_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int bond_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int bond_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);

/* sq_lock held: spreading began or ended. */
void bond_qp_short_limit(struct bond_qp *qp);

/* modify.c */
int bond_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

/* post.c */
int bond_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
/* The same for a chain of @num_wr that is posted whole, or, where one is wrong, not at all. */
int bond_post_send_all(struct ibv_qp *qp, struct ibv_send_wr *wr, uint32_t num_wr,
		       struct ibv_send_wr **bad_wr);
int bond_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* wr.c */
int bond_wr_init(struct bond_qp *qp, uint64_t send_ops_flags);
void bond_wr_fini(struct bond_qp *qp);

/* event.c */
void bond_event_member(struct bond_context *bctx, unsigned int member);
/* Destroy of an object: drops its unread events, waits for the acknowledgement of the read ones. */
void bond_events_end(struct bond_context *bctx, void *element, pthread_mutex_t *mutex,
		     pthread_cond_t *cond, const uint32_t *acked, uint32_t *delivered);

/* xrcd.c */
struct ibv_xrcd *bond_open_xrcd(struct ibv_context *ctx, struct ibv_xrcd_init_attr *attr);
int bond_close_xrcd(struct ibv_xrcd *xrcd);

/* member.c */
struct path *bond_member_path(struct bond_member *member, uint32_t qpn);
int bond_member_set_path(struct bond_context *bctx, unsigned int member, uint32_t qpn,
			 struct path *path);

#endif
