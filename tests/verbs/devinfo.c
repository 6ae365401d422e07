/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a bond says of itself against what its members say: limits that all members can keep,
 * the primary's identity, GIDs and pkeys at every index, port attributes. Every field has a rule.
 *
 * The members are asked by another process (with -E: with its own environment), because where
 * there is a bond its primary has the bond's name. A plain device is its own only member, and
 * must pass.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#include "common.h"

enum { MAX_MEMBERS = 16, MAX_TABLE = 256 };

struct facts {
	char name[64];
	char uverbs[64];
	uint64_t guid;
	int index;
	enum ibv_node_type node_type;
	enum ibv_transport_type transport;
	int num_comp_vectors;
	int bad_port_err;		/* of a port that does not exist */
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex attr_ex;
	struct ibv_port_attr port;
	int gid_err[MAX_TABLE];
	union ibv_gid gid[MAX_TABLE];
	struct ibv_gid_entry entry[MAX_TABLE];
	int num_table;			/* of ibv_query_gid_table */
	struct ibv_gid_entry table[MAX_TABLE];
	__be16 pkey[MAX_TABLE];
	int pkey_index;			/* of pkey[0] */
};

enum rule {
	RULE_SAME,			/* as the primary's */
	RULE_MIN,			/* at most the least of all members, at least half */
	RULE_PRIMARY,			/* at most the primary's value, at least half */
	RULE_AND,			/* only bits that all members have */
	RULE_MAX,			/* a time: at least the longest */
	RULE_SPEED,			/* judged together with others */
};

struct field {
	const char *name;
	size_t off;
	size_t size;
	enum rule rule;
};

#define DEV(f, r) { #f, offsetof(struct facts, attr.f), sizeof(((struct facts *)0)->attr.f), r }
#define PORT(f, r) { #f, offsetof(struct facts, port.f), sizeof(((struct facts *)0)->port.f), r }
#define OWN(f, r) { #f, offsetof(struct facts, f), sizeof(((struct facts *)0)->f), r }

static const struct field fields[] = {
	OWN(uverbs, RULE_SAME),
	OWN(guid, RULE_SAME),
	OWN(index, RULE_SAME),
	OWN(node_type, RULE_SAME),
	OWN(transport, RULE_SAME),
	OWN(bad_port_err, RULE_SAME),
	OWN(pkey_index, RULE_SAME),
	DEV(fw_ver, RULE_SAME),
	DEV(node_guid, RULE_SAME),
	DEV(sys_image_guid, RULE_SAME),
	DEV(max_mr_size, RULE_MIN),
	DEV(page_size_cap, RULE_AND),
	DEV(vendor_id, RULE_SAME),
	DEV(vendor_part_id, RULE_SAME),
	DEV(hw_ver, RULE_SAME),
	DEV(max_qp, RULE_MIN),
	DEV(max_qp_wr, RULE_MIN),
	DEV(device_cap_flags, RULE_AND),
	DEV(max_sge, RULE_MIN),
	DEV(max_sge_rd, RULE_MIN),
	DEV(max_cq, RULE_MIN),
	DEV(max_cqe, RULE_MIN),
	DEV(max_mr, RULE_MIN),
	DEV(max_pd, RULE_MIN),
	DEV(max_qp_rd_atom, RULE_MIN),
	DEV(max_ee_rd_atom, RULE_PRIMARY),
	DEV(max_res_rd_atom, RULE_MIN),
	DEV(max_qp_init_rd_atom, RULE_MIN),
	DEV(max_ee_init_rd_atom, RULE_PRIMARY),
	DEV(atomic_cap, RULE_PRIMARY),
	DEV(max_ee, RULE_PRIMARY),
	DEV(max_rdd, RULE_PRIMARY),
	DEV(max_mw, RULE_PRIMARY),
	DEV(max_raw_ipv6_qp, RULE_PRIMARY),
	DEV(max_raw_ethy_qp, RULE_PRIMARY),
	DEV(max_mcast_grp, RULE_PRIMARY),
	DEV(max_mcast_qp_attach, RULE_PRIMARY),
	DEV(max_total_mcast_qp_attach, RULE_PRIMARY),
	DEV(max_ah, RULE_PRIMARY),
	DEV(max_fmr, RULE_PRIMARY),
	DEV(max_map_per_fmr, RULE_PRIMARY),
	DEV(max_srq, RULE_PRIMARY),
	DEV(max_srq_wr, RULE_PRIMARY),
	DEV(max_srq_sge, RULE_PRIMARY),
	DEV(max_pkeys, RULE_SAME),
	DEV(local_ca_ack_delay, RULE_MAX),
	DEV(phys_port_cnt, RULE_SAME),
	PORT(state, RULE_SAME),
	PORT(max_mtu, RULE_SAME),
	PORT(active_mtu, RULE_SAME),
	PORT(gid_tbl_len, RULE_SAME),
	PORT(port_cap_flags, RULE_SAME),
	PORT(max_msg_sz, RULE_MIN),
	PORT(bad_pkey_cntr, RULE_SAME),
	PORT(qkey_viol_cntr, RULE_SAME),
	PORT(pkey_tbl_len, RULE_SAME),
	PORT(lid, RULE_SAME),
	PORT(sm_lid, RULE_SAME),
	PORT(lmc, RULE_SAME),
	PORT(max_vl_num, RULE_SAME),
	PORT(sm_sl, RULE_SAME),
	PORT(subnet_timeout, RULE_SAME),
	PORT(init_type_reply, RULE_SAME),
	PORT(active_width, RULE_SPEED),
	PORT(active_speed, RULE_SPEED),
	PORT(phys_state, RULE_SAME),
	PORT(link_layer, RULE_SAME),
	PORT(flags, RULE_SAME),
	PORT(port_cap_flags2, RULE_SAME),
};

enum { NUM_FIELDS = sizeof(fields) / sizeof(fields[0]) };

static const char *opt_members, *opt_dump;

static const struct opt_row rows[] = {
	{ "members", OPT_TEXT, &opt_members, "names, by commas, the primary first" },
	{ "dump", OPT_TEXT, &opt_dump, "(for itself) write these devices' facts to stdout" },
	{ 0 },
};

static struct ibv_context *open_named(const char *name, size_t len)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	int i;

	for (i = 0; list && list[i] && !ctx; i++)
		if (strlen(ibv_get_device_name(list[i])) == len &&
		    !memcmp(ibv_get_device_name(list[i]), name, len))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (!ctx)
		die("%.*s: no such device, or it does not open", (int)len, name);
	return ctx;
}

static void ask_tables(struct ibv_context *ctx, struct facts *f)
{
	ssize_t n;
	int i;

	for (i = 0; i < f->port.gid_tbl_len && i < MAX_TABLE; i++) {
		f->gid_err[i] = ibv_query_gid(ctx, 1, i, &f->gid[i]) ? 1 : 0;
		if (!f->gid_err[i] && ibv_query_gid_ex(ctx, 1, i, &f->entry[i], 0))
			memset(&f->entry[i], 0, sizeof(f->entry[i]));
	}
	for (i = 0; i < f->port.pkey_tbl_len && i < MAX_TABLE; i++)
		if (ibv_query_pkey(ctx, 1, i, &f->pkey[i]))
			die("%s: query_pkey of index %d", f->name, i);
	f->pkey_index = ibv_get_pkey_index(ctx, 1, f->pkey[0]);
	n = ibv_query_gid_table(ctx, f->table, MAX_TABLE, 0);
	f->num_table = n;
}

static void ask(const char *name, size_t len, struct facts *f)
{
	struct ibv_context *ctx = open_named(name, len);
	struct ibv_port_attr none;

	memset(f, 0, sizeof(*f));
	snprintf(f->name, sizeof(f->name), "%.*s", (int)len, name);
	snprintf(f->uverbs, sizeof(f->uverbs), "%s", ctx->device->dev_name);
	f->guid = ibv_get_device_guid(ctx->device);
	f->index = ibv_get_device_index(ctx->device);
	f->node_type = ctx->device->node_type;
	f->transport = ctx->device->transport_type;
	f->num_comp_vectors = ctx->num_comp_vectors;
	MUST(ibv_query_device(ctx, &f->attr));
	if (ibv_query_device_ex(ctx, NULL, &f->attr_ex))
		die("%s: query_device_ex", f->name);
	MUST(ibv_query_port(ctx, 1, &f->port));
	f->bad_port_err = ibv_query_port(ctx, f->attr.phys_port_cnt + 1, &none) ? 1 : 0;
	ask_tables(ctx, f);
	if (ibv_close_device(ctx))
		die("%s: close_device", f->name);
}

/* In the other process: facts of each named device, in order. */
static int dump(const char *names)
{
	static struct facts f;
	size_t len;

	/* stdout may be taken by what libraries say; the facts go to descriptor 3. */
	for (; *names; names += len + (names[len] == ',')) {
		len = strcspn(names, ",");
		ask(names, len, &f);
		if (write(3, &f, sizeof(f)) != sizeof(f))
			return 1;
	}
	return 0;
}

static void read_all(int fd, struct facts *f, int *n)
{
	size_t got = 0;
	ssize_t r;

	while ((r = read(fd, (char *)f + got, MAX_MEMBERS * sizeof(*f) - got)) > 0)
		got += r;
	*n = got / sizeof(*f);
	if (!*n || got % sizeof(*f))
		die("the process that asks the members said nothing");
}

static void ask_members(const char *prog, struct facts *f, int *n)
{
	int p[2], i, status;
	pid_t pid;

	if (pipe(p))
		die("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid) {
		for (i = 0; i < opts.nenv_b; i++)
			putenv((char *)opts.env_b[i]);
		if (p[1] != 3 && dup2(p[1], 3) != 3)
			_exit(126);
		execl("/proc/self/exe", prog, "-d", opts.dev[0], "--dump", opt_members,
		      (char *)NULL);
		_exit(127);
	}
	close(p[1]);
	read_all(p[0], f, n);
	close(p[0]);
	if (waitpid(pid, &status, 0) != pid || status)
		die("the process that asks the members ended with status %#x", status);
}

static uint64_t value(const struct facts *f, const struct field *fd)
{
	const char *at = (const char *)f + fd->off;
	uint64_t v = 0;
	uint32_t v32;
	uint16_t v16;

	switch (fd->size) {
	case 1:
		return *(const uint8_t *)at;
	case 2:
		memcpy(&v16, at, sizeof(v16));
		return v16;
	case 4:
		memcpy(&v32, at, sizeof(v32));
		return v32;
	}
	memcpy(&v, at, sizeof(v));
	return v;
}

static void check_limit(const struct field *fd, uint64_t v, uint64_t most)
{
	EXPECT(v <= most, "%s is %llu, members can do %llu", fd->name, (unsigned long long)v,
	       (unsigned long long)most);
	EXPECT(v >= most / 2, "%s is %llu, less than half of the members' %llu", fd->name,
	       (unsigned long long)v, (unsigned long long)most);
}

static void check_field(const struct field *fd, const struct facts *bond,
			const struct facts *m, int n)
{
	uint64_t v = value(bond, fd), least = value(m, fd), most = least, all = least, one;
	int i;

	for (i = 1; i < n; i++) {
		one = value(&m[i], fd);
		least = one < least ? one : least;
		most = one > most ? one : most;
		all &= one;
	}
	switch (fd->rule) {
	case RULE_SAME:
		EXPECT(!memcmp((const char *)bond + fd->off, (const char *)m + fd->off, fd->size),
		       "%s is %#llx, the primary's is %#llx", fd->name, (unsigned long long)v,
		       (unsigned long long)value(m, fd));
		break;
	case RULE_MIN:
		check_limit(fd, v, least);
		break;
	case RULE_PRIMARY:
		check_limit(fd, v, value(m, fd));
		break;
	case RULE_AND:
		EXPECT(!(v & ~all), "%s is %#llx, all members have only %#llx", fd->name,
		       (unsigned long long)v, (unsigned long long)all);
		break;
	case RULE_MAX:
		EXPECT(v >= most, "%s is %llu, a member has %llu", fd->name,
		       (unsigned long long)v, (unsigned long long)most);
		break;
	case RULE_SPEED:
		break;
	}
}

static void test_fields(const struct facts *bond, const struct facts *m, int n)
{
	int i;

	case_begin("%s: device and port attributes against %d member%s", bond->name, n,
		   n > 1 ? "s" : "");
	for (i = 0; i < NUM_FIELDS; i++)
		check_field(&fields[i], bond, m, n);
	EXPECT(bond->num_comp_vectors >= 1 && bond->num_comp_vectors <= m->num_comp_vectors,
	       "num_comp_vectors is %d, the primary's is %d", bond->num_comp_vectors,
	       m->num_comp_vectors);
	case_end();
}

static void test_device_ex(const struct facts *bond, const struct facts *m, int n)
{
	uint64_t odp = ~0ull, caps = ~0ull;
	int i;

	case_begin("%s: query_device_ex", bond->name);
	for (i = 0; i < n; i++) {
		odp &= m[i].attr_ex.odp_caps.general_caps;
		caps &= m[i].attr_ex.device_cap_flags_ex;
	}
	EXPECT(!memcmp(&bond->attr, &bond->attr_ex.orig_attr, sizeof(bond->attr)),
	       "orig_attr is not what query_device says");
	EXPECT(!(bond->attr_ex.odp_caps.general_caps & ~odp), "ODP that not all members have");
	EXPECT(!(bond->attr_ex.device_cap_flags_ex & ~caps),
	       "device_cap_flags_ex %#llx, all members have only %#llx",
	       (unsigned long long)bond->attr_ex.device_cap_flags_ex, (unsigned long long)caps);
	EXPECT(bond->attr_ex.phys_port_cnt_ex == m->attr_ex.phys_port_cnt_ex,
	       "phys_port_cnt_ex is %u", bond->attr_ex.phys_port_cnt_ex);
	case_end();
}

static void test_gids(const struct facts *bond, const struct facts *m)
{
	int i, len = m->port.gid_tbl_len < MAX_TABLE ? m->port.gid_tbl_len : MAX_TABLE;

	case_begin("%s: GIDs at %d indexes", bond->name, len);
	EXPECT(len > 0, "the primary has no GID table");
	for (i = 0; i < len; i++) {
		EXPECT(bond->gid_err[i] == m->gid_err[i], "index %d: query_gid %s", i,
		       bond->gid_err[i] ? "fails" : "does not fail");
		EXPECT(!memcmp(&bond->gid[i], &m->gid[i], sizeof(m->gid[i])),
		       "index %d: another GID than the primary's", i);
		EXPECT(bond->entry[i].gid_type == m->entry[i].gid_type &&
		       bond->entry[i].ndev_ifindex == m->entry[i].ndev_ifindex &&
		       !memcmp(&bond->entry[i].gid, &m->entry[i].gid, sizeof(m->gid[i])),
		       "index %d: query_gid_ex tells another type, netdev or GID", i);
	}
	EXPECT(bond->num_table == m->num_table &&
	       !memcmp(bond->table, m->table, sizeof(m->table)),
	       "query_gid_table tells %d entries, the primary's %d, or others",
	       bond->num_table, m->num_table);
	case_end();
}

static void test_pkeys(const struct facts *bond, const struct facts *m)
{
	int i;

	case_begin("%s: pkeys at %d indexes", bond->name, m->port.pkey_tbl_len);
	for (i = 0; i < m->port.pkey_tbl_len && i < MAX_TABLE; i++)
		EXPECT(bond->pkey[i] == m->pkey[i], "index %d: %#x, the primary's is %#x", i,
		       bond->pkey[i], m->pkey[i]);
	case_end();
}

/* Gbit/s; 0 where the fields do not say. */
static double speed(const struct facts *f)
{
	static const struct { int code; double gbps; } speeds[] = {
		{ 1, 2.5 }, { 2, 5 }, { 4, 10 }, { 8, 10 }, { 16, 14 }, { 32, 25 }, { 64, 50 },
		{ 128, 100 },
	}, widths[] = {
		{ 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 },
	};
	double s = 0, w = 0;
	size_t i;

	for (i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
		if (speeds[i].code == f->port.active_speed)
			s = speeds[i].gbps;
	for (i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		if (widths[i].code == f->port.active_width)
			w = widths[i].gbps;
	return s * w;
}

static void test_speed(const struct facts *bond, const struct facts *m, int n)
{
	double all = 0;
	int i;

	case_begin("%s: speed of all members together", bond->name);
	for (i = 0; i < n; i++)
		all += speed(&m[i]);
	EXPECT(speed(bond) > 0, "width %u and speed %u say nothing", bond->port.active_width,
	       bond->port.active_speed);
	EXPECT(speed(bond) >= speed(m), "%.1f Gbit/s, the primary alone has %.1f", speed(bond),
	       speed(m));
	EXPECT(speed(bond) <= all, "%.1f Gbit/s, the members together have %.1f", speed(bond),
	       all);
	case_note("%.1f of %.1f Gbit/s", speed(bond), all);
	case_end();
}

static void test_listed(const struct facts *bond)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i, same_name = 0, same_uverbs = 0;

	case_begin("%s: listed once", bond->name);
	for (i = 0; list && list[i]; i++) {
		same_name += !strcmp(ibv_get_device_name(list[i]), bond->name);
		same_uverbs += !strcmp(list[i]->dev_name, bond->uverbs);
	}
	EXPECT(same_name == 1, "%d devices of that name", same_name);
	EXPECT(same_uverbs == 1, "%d devices on %s", same_uverbs, bond->uverbs);
	if (list)
		ibv_free_device_list(list);
	case_end();
}

int main(int argc, char **argv)
{
	static struct facts bond, members[MAX_MEMBERS];
	int n;

	opts_parse(argc, argv, "a bond's attributes against its members'", rows);
	if (opt_dump)
		return dump(opt_dump);
	if (!opt_members)
		opt_members = opts.dev[0];
	ask_members(argv[0], members, &n);
	ask(opts.dev[0], strlen(opts.dev[0]), &bond);
	test_listed(&bond);
	test_fields(&bond, members, n);
	test_device_ex(&bond, members, n);
	test_gids(&bond, members);
	test_pkeys(&bond, members);
	test_speed(&bond, members, n);
	return report();
}
