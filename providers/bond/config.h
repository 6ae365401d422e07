/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The configuration as the rest of the provider sees it: one struct bond_config for every section
 * of the file that is right in every line.
 *
 * Here: the values, the option table's public view, and how a member specification is compared with
 * a device. Not here: looking for devices (member.c), reading the secret (auth.c).
 * Next: config.c, whose option table is the only list of keys, ranges and defaults.
 */
#ifndef BOND_CONFIG_H
#define BOND_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#ifndef BOND_CONF_FILE	/* CMake's option of that name */
#define BOND_CONF_FILE "/etc/rdma-bond.conf"
#endif

enum {
	BOND_MAX_MEMBERS = 16,
	CONFIG_NAME_SIZE = 64,	/* of a device in the kernel and libibverbs, with NUL */
	CONFIG_PATH_SIZE = 256,
	CONFIG_AUTO = -1,	/* an integer left to the application or to the bond */
};

enum config_member_kind {
	CONFIG_MEMBER_NAME,	/* RDMA device name: mlx5_0 */
	CONFIG_MEMBER_NETDEV,	/* netdev:ens1f0np0 */
	CONFIG_MEMBER_PCI,	/* pci:0000:17:00.0 */
	CONFIG_MEMBER_GUID,	/* guid:506b:4b03:00c2:1a2e, the node GUID */
};

/*
 * text has no prefix and is normal: PCI addresses have their domain, PCI addresses and GUIDs are in
 * lower case, GUIDs have 16 digits and no colons. Two equal specifications are equal bytes.
 */
struct member_spec {
	enum config_member_kind kind;
	char text[CONFIG_NAME_SIZE];
};

/* Strings of one device, spelled as sysfs does; NULL or "" where unknown. */
struct config_device_info {
	const char *name;
	const char *netdev;
	const char *pci;
	const char *guid;
};

enum config_ordering { CONFIG_ORDERING_MEMORY, CONFIG_ORDERING_COMPLETION, CONFIG_ORDERING_STRICT };
enum config_mode { CONFIG_MODE_STRIPE, CONFIG_MODE_BACKUP };
enum config_split_send { CONFIG_SPLIT_SEND_WRITABLE, CONFIG_SPLIT_SEND_ALWAYS };

struct bond_config {
	char name[CONFIG_NAME_SIZE];
	int line;			/* of the section's heading */
	int num_members;		/* at least 1; members[0] is the primary */
	struct member_spec members[BOND_MAX_MEMBERS];
	int num_weights;		/* 0 (auto) or num_members */
	int weights[BOND_MAX_MEMBERS];	/* 1 to 1000000 each, relative to one another */
	int stripe_above;		/* bytes */
	int order_below;		/* bytes; stripe_above unless given */
	int ordering;			/* enum config_ordering */
	int mode;			/* enum config_mode */
	int split_send;			/* enum config_split_send */
	int control_port;		/* TCP, 1 to 65535, host order */
	int traffic_class;		/* this and the next three: CONFIG_AUTO or 0 to 255 */
	int sl;				/* 0 to 15 */
	int timeout;			/* 1 to 31: 4.096 us times two to this power */
	int retry_cnt;			/* 0 to 7 */
	int qps_per_member;		/* 1 to 8; times num_members at most BOND_MAX_PATHS */
	int wait_ms;			/* RDMA_BOND_WAIT_MS, no key of the file; 0 to 600000 */
	char auth_key_file[CONFIG_PATH_SIZE];	/* "" is none; its mode and owner are not checked */
};

struct config {
	int num_bonds;
	struct bond_config *bonds;	/* for free(3) */
};

/*
 * Called once for each thing that is wrong. text is one line, without a newline:
 * "FILE:LINE: what is wrong; allowed: ..." (LINE is 0 where the whole file is meant), or
 * "VARIABLE: what is wrong; allowed: ..." for the environment. bond is the section that will not
 * become a bond because of it, NULL where it concerns no single one.
 */
typedef void (*config_report_fn)(void *arg, const char *bond, const char *text);

/*
 * Reads $RDMA_BOND_CONF (unless setuid) or BOND_CONF_FILE, then the overrides in the
 * environment. No file, or a character device such as /dev/null, is no bond and no report.
 * Returns 0, also where bonds were left out after a report; an errno where the file could not be
 * read at all (reported too) or memory ran out. out->bonds is valid or NULL after all of them.
 */
int config_load(struct config *out, config_report_fn report, void *arg);

/* Whether the device is the one that the specification means: 1 or 0. */
int config_member_matches(const struct member_spec *spec, const struct config_device_info *dev);

/*
 * Whether the device has the bond's own name. Where no device is what members[0] says, this one is
 * the primary: the kernel device may have been renamed (design: "Identity").
 */
int config_bond_named(const struct bond_config *bond, const struct config_device_info *dev);

/* A row of the option table in words: the manual page's table is printed from these. */
struct config_option_text {
	const char *key;
	const char *variable;		/* environment override, "" where there is none */
	bool in_file;			/* false: the variable is the only way */
	const char *allowed;
	const char *def;		/* default, as one would write it */
	const char *help;
};

/*
 * Row number index, from 0: 1, or 0 behind the last one. The strings of *text are in buf or
 * static; buf is used up to size.
 */
int config_option_text(int index, struct config_option_text *text, char *buf, int size);

#endif
