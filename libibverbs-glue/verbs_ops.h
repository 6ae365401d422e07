/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The table of a provider's operations: one row each, in the order of their slots in memory.
 *
 * The order is libibverbs' own and alphabetic; a row that came with a later layout stands where it
 * sorts, which is why a wrong layout calls the wrong function. verbs_private.h makes the structure
 * from this table, context.c counts it, the tests name its members.
 *
 * OP(type returned, name, (types of the arguments))
 */
#ifndef GLUE_VERBS_OPS_H
#define GLUE_VERBS_OPS_H

#include "layout.h"

/* clang-format off */
#define VERBS_OPS_A_TO_C(OP) \
	OP(int, advise_mr, (struct ibv_pd *, enum ibv_advise_mr_advice, uint32_t flags, \
			    struct ibv_sge *, uint32_t num_sge)) \
	GLUE_SINCE_64(OP(void *, alloc_buf, (struct ibv_pd *, size_t size, struct ibv_buf **))) \
	OP(struct ibv_dm *, alloc_dm, (struct ibv_context *, struct ibv_alloc_dm_attr *)) \
	GLUE_SINCE_59(OP(struct ibv_dmah *, alloc_dmah, \
			 (struct ibv_context *, struct ibv_dmah_init_attr *))) \
	OP(struct ibv_mw *, alloc_mw, (struct ibv_pd *, enum ibv_mw_type)) \
	OP(struct ibv_mr *, alloc_null_mr, (struct ibv_pd *)) \
	OP(struct ibv_pd *, alloc_parent_domain, \
	   (struct ibv_context *, struct ibv_parent_domain_init_attr *)) \
	OP(struct ibv_pd *, alloc_pd, (struct ibv_context *)) \
	OP(struct ibv_td *, alloc_td, (struct ibv_context *, struct ibv_td_init_attr *)) \
	OP(void, async_event, (struct ibv_context *, struct ibv_async_event *)) \
	OP(int, attach_counters_point_flow, \
	   (struct ibv_counters *, struct ibv_counter_attach_attr *, struct ibv_flow *)) \
	OP(int, attach_mcast, (struct ibv_qp *, const union ibv_gid *, uint16_t lid)) \
	OP(int, bind_mw, (struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *)) \
	OP(int, close_xrcd, (struct ibv_xrcd *)) \
	OP(void, cq_event, (struct ibv_cq *)) \
	OP(struct ibv_ah *, create_ah, (struct ibv_pd *, struct ibv_ah_attr *)) \
	GLUE_SINCE_65(OP(struct ibv_comp_cntr *, create_comp_cntr, \
			 (struct ibv_context *, struct ibv_comp_cntr_init_attr *))) \
	OP(struct ibv_counters *, create_counters, \
	   (struct ibv_context *, struct ibv_counters_init_attr *)) \
	OP(struct ibv_cq *, create_cq, \
	   (struct ibv_context *, int cqe, struct ibv_comp_channel *, int comp_vector)) \
	OP(struct ibv_cq_ex *, create_cq_ex, \
	   (struct ibv_context *, struct ibv_cq_init_attr_ex *)) \
	OP(struct ibv_flow *, create_flow, (struct ibv_qp *, struct ibv_flow_attr *)) \
	OP(struct ibv_flow_action *, create_flow_action_esp, \
	   (struct ibv_context *, struct ibv_flow_action_esp_attr *)) \
	OP(struct ibv_qp *, create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *)) \
	OP(struct ibv_qp *, create_qp_ex, \
	   (struct ibv_context *, struct ibv_qp_init_attr_ex *)) \
	OP(struct ibv_rwq_ind_table *, create_rwq_ind_table, \
	   (struct ibv_context *, struct ibv_rwq_ind_table_init_attr *)) \
	OP(struct ibv_srq *, create_srq, (struct ibv_pd *, struct ibv_srq_init_attr *)) \
	OP(struct ibv_srq *, create_srq_ex, \
	   (struct ibv_context *, struct ibv_srq_init_attr_ex *)) \
	OP(struct ibv_wq *, create_wq, (struct ibv_context *, struct ibv_wq_init_attr *))

#define VERBS_OPS_D_TO_O(OP) \
	GLUE_SINCE_59(OP(int, dealloc_dmah, (struct ibv_dmah *))) \
	OP(int, dealloc_mw, (struct ibv_mw *)) \
	OP(int, dealloc_pd, (struct ibv_pd *)) \
	OP(int, dealloc_td, (struct ibv_td *)) \
	OP(int, dereg_mr, (struct verbs_mr *)) \
	OP(int, destroy_ah, (struct ibv_ah *)) \
	GLUE_SINCE_65(OP(int, destroy_comp_cntr, (struct ibv_comp_cntr *))) \
	OP(int, destroy_counters, (struct ibv_counters *)) \
	OP(int, destroy_cq, (struct ibv_cq *)) \
	OP(int, destroy_flow, (struct ibv_flow *)) \
	OP(int, destroy_flow_action, (struct ibv_flow_action *)) \
	OP(int, destroy_qp, (struct ibv_qp *)) \
	OP(int, destroy_rwq_ind_table, (struct ibv_rwq_ind_table *)) \
	OP(int, destroy_srq, (struct ibv_srq *)) \
	OP(int, destroy_wq, (struct ibv_wq *)) \
	OP(int, detach_mcast, (struct ibv_qp *, const union ibv_gid *, uint16_t lid)) \
	GLUE_SINCE_62(OP(int, dm_export_dmabuf_fd, (struct ibv_dm *))) \
	GLUE_SINCE_64(OP(void, free_buf, (struct ibv_buf *))) \
	OP(void, free_context, (struct ibv_context *)) \
	OP(int, free_dm, (struct ibv_dm *)) \
	OP(int, get_srq_num, (struct ibv_srq *, uint32_t *srq_num)) \
	GLUE_SINCE_35(OP(struct ibv_dm *, import_dm, (struct ibv_context *, uint32_t handle))) \
	OP(struct ibv_mr *, import_mr, (struct ibv_pd *, uint32_t handle)) \
	OP(struct ibv_pd *, import_pd, (struct ibv_context *, uint32_t handle)) \
	GLUE_SINCE_65(OP(int, inc_comp_cntr, (struct ibv_comp_cntr *, uint64_t amount))) \
	GLUE_SINCE_65(OP(int, inc_err_comp_cntr, (struct ibv_comp_cntr *, uint64_t amount))) \
	OP(int, modify_cq, (struct ibv_cq *, struct ibv_modify_cq_attr *)) \
	OP(int, modify_flow_action_esp, \
	   (struct ibv_flow_action *, struct ibv_flow_action_esp_attr *)) \
	OP(int, modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int attr_mask)) \
	OP(int, modify_qp_rate_limit, (struct ibv_qp *, struct ibv_qp_rate_limit_attr *)) \
	OP(int, modify_srq, (struct ibv_srq *, struct ibv_srq_attr *, int attr_mask)) \
	OP(int, modify_wq, (struct ibv_wq *, struct ibv_wq_attr *)) \
	OP(struct ibv_qp *, open_qp, (struct ibv_context *, struct ibv_qp_open_attr *)) \
	OP(struct ibv_xrcd *, open_xrcd, (struct ibv_context *, struct ibv_xrcd_init_attr *))

#define VERBS_OPS_P_TO_Q(OP) \
	OP(int, poll_cq, (struct ibv_cq *, int num_entries, struct ibv_wc *)) \
	OP(int, post_recv, (struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad)) \
	OP(int, post_send, (struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad)) \
	OP(int, post_srq_ops, (struct ibv_srq *, struct ibv_ops_wr *, struct ibv_ops_wr **bad)) \
	OP(int, post_srq_recv, \
	   (struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad)) \
	GLUE_SINCE_65(OP(int, qp_attach_comp_cntr, (struct ibv_qp *, struct ibv_comp_cntr *, \
						    struct ibv_qp_attach_comp_cntr_attr *))) \
	GLUE_SINCE_65(OP(int, query_comp_cntr_caps, (struct ibv_context *, \
						     struct ibv_comp_cntr_caps *, size_t))) \
	OP(int, query_device_ex, \
	   (struct ibv_context *, const struct ibv_query_device_ex_input *, \
	    struct ibv_device_attr_ex *, size_t attr_size)) \
	OP(int, query_ece, (struct ibv_qp *, struct ibv_ece *)) \
	OP(int, query_port, (struct ibv_context *, uint8_t port_num, struct ibv_port_attr *)) \
	GLUE_SINCE_62(OP(int, query_port_speed, \
			 (struct ibv_context *, uint32_t port_num, uint64_t *speed))) \
	OP(int, query_qp, (struct ibv_qp *, struct ibv_qp_attr *, int attr_mask, \
			   struct ibv_qp_init_attr *)) \
	GLUE_SINCE_36(OP(int, query_qp_data_in_order, \
			 (struct ibv_qp *, enum ibv_wr_opcode, uint32_t flags))) \
	OP(int, query_rt_values, (struct ibv_context *, struct ibv_values_ex *)) \
	OP(int, query_srq, (struct ibv_srq *, struct ibv_srq_attr *))

#define VERBS_OPS_R_TO_Z(OP) \
	GLUE_SINCE_65(OP(int, read_comp_cntr, (struct ibv_comp_cntr *, uint64_t *value))) \
	OP(int, read_counters, \
	   (struct ibv_counters *, uint64_t *values, uint32_t num_values, uint32_t flags)) \
	GLUE_SINCE_65(OP(int, read_err_comp_cntr, (struct ibv_comp_cntr *, uint64_t *value))) \
	OP(struct ibv_mr *, reg_dm_mr, (struct ibv_pd *, struct ibv_dm *, uint64_t offset, \
					size_t length, unsigned int access)) \
	OP(struct ibv_mr *, reg_dmabuf_mr, (struct ibv_pd *, uint64_t offset, size_t length, \
					    uint64_t iova, int fd, int access)) \
	OP(struct ibv_mr *, reg_mr, (struct ibv_pd *, void *addr, size_t length, \
				     uint64_t iova, int access)) \
	GLUE_SINCE_59(OP(struct ibv_mr *, reg_mr_ex, \
			 (struct ibv_pd *, struct ibv_mr_init_attr *))) \
	OP(int, req_notify_cq, (struct ibv_cq *, int solicited_only)) \
	OP(int, rereg_mr, (struct verbs_mr *, int flags, struct ibv_pd *, void *addr, \
			   size_t length, int access)) \
	OP(int, resize_cq, (struct ibv_cq *, int cqe)) \
	GLUE_SINCE_65(OP(int, set_comp_cntr, (struct ibv_comp_cntr *, uint64_t value))) \
	OP(int, set_ece, (struct ibv_qp *, struct ibv_ece *)) \
	GLUE_SINCE_65(OP(int, set_err_comp_cntr, (struct ibv_comp_cntr *, uint64_t value))) \
	GLUE_SINCE_35(OP(void, unimport_dm, (struct ibv_dm *))) \
	OP(void, unimport_mr, (struct ibv_mr *)) \
	OP(void, unimport_pd, (struct ibv_pd *))

#define VERBS_OPS(OP) \
	VERBS_OPS_A_TO_C(OP) VERBS_OPS_D_TO_O(OP) VERBS_OPS_P_TO_Q(OP) VERBS_OPS_R_TO_Z(OP)
/* clang-format on */

#endif
