/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a provider must know of libibverbs' private ABI and no public header says: the structures
 * that both sides touch and the private functions that we call.
 *
 * Facts of the ABI in our own words; the names are libibverbs' own because the linker and every
 * reader of another provider know them. Everything public comes from <infiniband/verbs.h>. The
 * ibv_cmd_* family is not declared: the bond reaches the kernel through its members only.
 *
 * Read next: verbs_ops.h (the operations), layout.h (which layout), glue.h (helpers on top).
 */
#ifndef GLUE_VERBS_PRIVATE_H
#define GLUE_VERBS_PRIVATE_H

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <infiniband/verbs.h>

#include "layout.h"
#include "verbs_ops.h"

/* Later layouts name these public types; older public headers do not have them. */
struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

struct verbs_mr;

/*
 * Devices
 */

struct list_node {
	struct list_node *next;
	struct list_node *prev;
};

enum verbs_match_kind {
	VERBS_MATCH_SENTINEL,
	VERBS_MATCH_PCI,
	VERBS_MATCH_MODALIAS,
	VERBS_MATCH_DRIVER_ID,
};

/* One line of a driver's match table; the last is VERBS_MATCH_SENTINEL. */
struct verbs_match_ent {
	void *driver_data;
	union {
		const char *modalias; /* a glob, for VERBS_MATCH_MODALIAS */
		uint64_t driver_id; /* enum rdma_driver_id, for VERBS_MATCH_DRIVER_ID */
	} u;
	uint16_t vendor;
	uint16_t device;
	uint8_t kind; /* enum verbs_match_kind */
};

#define VERBS_DRIVER_ID(id) { .u = { .driver_id = (id) }, .kind = VERBS_MATCH_DRIVER_ID }

enum verbs_sysfs_flags {
	VSYSFS_READ_MODALIAS = 1u << 0, /* modalias[] is valid, empty if there is none */
	VSYSFS_READ_NODE_GUID = 1u << 1, /* node_guid is valid */
};

/*
 * A kernel device as libibverbs found it. Owned by the verbs_device that was made of it, whose last
 * put frees it with free(3).
 */
struct verbs_sysfs_dev {
	struct list_node entry;
	void *provider_data;
	const struct verbs_match_ent *match;
	unsigned int flags; /* enum verbs_sysfs_flags */
	char sysfs_name[IBV_SYSFS_NAME_MAX]; /* uverbs0 */
	dev_t sysfs_cdev;
	char ibdev_name[IBV_SYSFS_NAME_MAX]; /* mlx5_0; copied into the device after alloc_device */
	char ibdev_path[IBV_SYSFS_PATH_MAX]; /* /sys/class/infiniband/mlx5_0 */
	char modalias[512];
	uint64_t node_guid; /* host order */
	uint32_t driver_id; /* RDMA_DRIVER_UNKNOWN where netlink did not say */
	enum ibv_node_type node_type;
	int ibdev_idx; /* -1 where netlink did not say */
	GLUE_SINCE_35(uint32_t num_ports;)
	uint32_t abi_ver;
	struct timespec time_created;
};

struct verbs_device;

/* What a driver registers. alloc_device returns a zeroed verbs_device, uninit_device frees it. */
struct verbs_device_ops {
	const char *name;
	uint32_t match_min_abi_version;
	uint32_t match_max_abi_version;
	const struct verbs_match_ent *match_table; /* not NULL: libibverbs walks it unasked */
	const struct verbs_device_ops **static_providers;
	bool (*match_device)(struct verbs_sysfs_dev *);
	/* Both take cmd_fd over, also when they fail. */
	struct verbs_context *(*alloc_context)(struct ibv_device *, int cmd_fd, void *private_data);
	struct verbs_context *(*import_context)(struct ibv_device *, int cmd_fd);
	struct verbs_device *(*alloc_device)(struct verbs_sysfs_dev *);
	void (*uninit_device)(struct verbs_device *);
};

struct verbs_device {
	struct ibv_device device;
	const struct verbs_device_ops *ops;
	atomic_int refcount; /* one for the list, one per list handed out, one per context */
	struct list_node entry;
	struct verbs_sysfs_dev *sysfs;
	uint64_t core_support; /* IB_UVERBS_CORE_SUPPORT_*, known once opened */
};

static inline struct verbs_device *to_verbs_device(struct ibv_device *device)
{
	return (struct verbs_device *)device;
}

static inline struct verbs_context *to_verbs_context(struct ibv_context *context)
{
	return (struct verbs_context *)((char *)context - offsetof(struct verbs_context, context));
}

/*
 * Operations of a context
 */

#define VERBS_OP_MEMBER(type, name, args) type(*name) args;
struct verbs_context_ops {
	VERBS_OPS(VERBS_OP_MEMBER)
};
#undef VERBS_OP_MEMBER

/*
 * Objects that libibverbs expects to be longer than their public part
 */

enum ibv_mr_type {
	IBV_MR_TYPE_MR,
	IBV_MR_TYPE_NULL_MR,
	IBV_MR_TYPE_IMPORTED_MR,
	IBV_MR_TYPE_DMABUF_MR,
};

struct verbs_mr {
	struct ibv_mr ibv_mr;
	enum ibv_mr_type mr_type;
	int access; /* enum ibv_access_flags; ibv_rereg_mr reads and writes it */
};

enum verbs_qp_mask {
	VERBS_QP_XRCD = 1u << 0,
	VERBS_QP_EX = 1u << 1, /* qp_ex is valid: ibv_qp_to_qp_ex answers it */
};

struct verbs_xrcd {
	struct ibv_xrcd xrcd;
	uint32_t comp_mask;
	uint32_t handle;
};

struct verbs_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex qp_ex;
	};
	uint32_t comp_mask; /* enum verbs_qp_mask */
	struct verbs_xrcd *xrcd;
};

struct verbs_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex cq_ex;
	};
};

struct verbs_srq {
	struct ibv_srq srq;
	enum ibv_srq_type srq_type;
	struct verbs_xrcd *xrcd;
	struct ibv_cq *cq;
	uint32_t srq_num;
};

struct verbs_dm {
	struct ibv_dm dm;
	uint32_t handle;
};

/*
 * Private functions, all of version IBVERBS_PRIVATE_<PABI>
 */

/* The driver list: in the order of the calls. */
#define verbs_register_driver GLUE_REGISTER_SYMBOL
void verbs_register_driver(const struct verbs_device_ops *ops);

/* Opens a device of the list or one made by hand; adds a reference, which closing gives back. */
struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data);

/*
 * Allocates size_bytes with a verbs_context at context_offset (an offset dressed as a pointer).
 * Takes cmd_fd over, also when it fails; NULL and errno then. -1 is no descriptor.
 */
void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size_bytes,
				    struct verbs_context *context_offset, uint32_t driver_id);

/* The same with the types checked: TYPE has the verbs_context MEMBER. */
#define verbs_alloc_context(device, cmd_fd, TYPE, MEMBER, driver_id) \
	((TYPE *)_verbs_init_and_alloc_context( \
		(device), (cmd_fd), sizeof(TYPE), \
		(struct verbs_context *)(offsetof(TYPE, MEMBER) + \
					 0 * sizeof(((TYPE *)0)->MEMBER.context)), \
		(driver_id)))

/* Closes cmd_fd and async_fd unless they are -1 and puts the device; frees not the context. */
void verbs_uninit_context(struct verbs_context *context);

/* Sets what is not NULL in ops; may be called again to override single operations. */
void verbs_set_ops(struct verbs_context *context, const struct verbs_context_ops *ops);

/* For a CQ that create_cq or create_cq_ex returned this is done by libibverbs itself. */
void verbs_init_cq(struct ibv_cq *cq, struct ibv_context *context,
		   struct ibv_comp_channel *channel, void *cq_context);

/*
 * Logging: to the file that VERBS_LOG_FILE names, what VERBS_LOG_LEVEL allows, else nowhere.
 */
enum verbs_log_level {
	VERBS_LOG_LEVEL_NONE,
	VERBS_LOG_ERR,
	VERBS_LOG_WARN,
	VERBS_LOG_INFO,
	VERBS_LOG_DEBUG,
};

/* Weak: rdma-core has it since 37, in the middle of layout 36. */
void __verbs_log(struct verbs_context *context, uint32_t level, const char *format, ...)
	__attribute__((weak, format(printf, 3, 4)));

/* A line about vctx, a struct verbs_context *; errno stays as it was. */
#define verbs_log(vctx, level, format, ...) \
	do { \
		int log_errno_ = errno; \
		if (__verbs_log) \
			__verbs_log((vctx), (level), "%s: %s:%d: " format "\n", \
				    (vctx)->context.device->name, __func__, \
				    __LINE__ __VA_OPT__(,) __VA_ARGS__); \
		errno = log_errno_; \
	} while (0)
#define verbs_err(vctx, ...) verbs_log(vctx, VERBS_LOG_ERR, __VA_ARGS__)
#define verbs_warn(vctx, ...) verbs_log(vctx, VERBS_LOG_WARN, __VA_ARGS__)
#define verbs_info(vctx, ...) verbs_log(vctx, VERBS_LOG_INFO, __VA_ARGS__)
#define verbs_debug(vctx, ...) verbs_log(vctx, VERBS_LOG_DEBUG, __VA_ARGS__)

#endif
