/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The configuration: what a good file gives, and that each bad one gives exactly one line that
 * names the file, the line, what is wrong and what is allowed, with the good bonds left alone.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

static char dir[] = "/tmp/bond-config-XXXXXX";
static char path[64];
static struct config c;	/* of the last load() */

static struct {
	int count;
	char bond[64];
	char text[1024];	/* the last one */
} said;

static void on_report(void *arg, const char *bond, const char *text)
{
	assert_ptr_equal(arg, &said);
	assert_null(strchr(text, '\n'));
	said.count++;
	snprintf(said.bond, sizeof(said.bond), "%s", bond ? bond : "");
	snprintf(said.text, sizeof(said.text), "%s", text);
}

static void write_bytes(const char *bytes, size_t size)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, size, f), size);
	assert_int_equal(fclose(f), 0);
}

static int load(void)
{
	memset(&said, 0, sizeof(said));
	free(c.bonds);
	return config_load(&c, on_report, &said);
}

static void load_text(const char *text)
{
	write_bytes(text, strlen(text));
	assert_int_equal(load(), 0);
}

/* One report of "PATH:line: ...word...; allowed: ...allowed..." about the bond. */
static void expect_said(const char *bond, int line, const char *word, const char *allowed)
{
	char head[128], *tail;

	snprintf(head, sizeof(head), "%s:%d: ", path, line);
	tail = strstr(said.text, "; allowed: ");
	if (said.count != 1 || strncmp(said.text, head, strlen(head)) || !tail ||
	    !strstr(said.text, word) || !strstr(tail, allowed) || strcmp(said.bond, bond))
		fail_msg("%d reports, for \"%s\" in line %d with %s and %s: [%s] %s", said.count,
			 bond, line, word, allowed, said.bond, said.text);
}

/* The text, with a good bond in front and behind: these two come, bond0 does not. */
static void expect_bad(const char *text, int line, const char *word, const char *allowed)
{
	char all[4096];

	snprintf(all, sizeof(all), "[good]\nmembers = m0, m1\n%s\n[last]\nmembers=m2\n", text);
	load_text(all);
	expect_said("bond0", line + 2, word, allowed);
	assert_int_equal(c.num_bonds, 2);
	assert_string_equal(c.bonds[0].name, "good");
	assert_string_equal(c.bonds[1].name, "last");
}

static void good_defaults(void **state)
{
	const struct bond_config *b;

	(void)state;
	load_text("; a comment\n\n[bond0]\nmembers = mlx5_0, mlx5_1\n");
	assert_int_equal(said.count, 0);
	assert_int_equal(c.num_bonds, 1);
	b = c.bonds;
	assert_string_equal(b->name, "bond0");
	assert_int_equal(b->line, 3);
	assert_int_equal(b->num_members, 2);
	assert_int_equal(b->members[1].kind, CONFIG_MEMBER_NAME);
	assert_string_equal(b->members[1].text, "mlx5_1");
	assert_int_equal(b->num_weights, 0);
	assert_int_equal(b->stripe_above, 16384);
	assert_int_equal(b->order_below, 16384);
	assert_int_equal(b->ordering, CONFIG_ORDERING_MEMORY);
	assert_int_equal(b->mode, CONFIG_MODE_STRIPE);
	assert_int_equal(b->split_send, CONFIG_SPLIT_SEND_WRITABLE);
	assert_int_equal(b->control_port, 18791);
	assert_int_equal(b->traffic_class, CONFIG_AUTO);
	assert_int_equal(b->sl, CONFIG_AUTO);
	assert_int_equal(b->timeout, CONFIG_AUTO);
	assert_int_equal(b->retry_cnt, CONFIG_AUTO);
	assert_int_equal(b->qps_per_member, 1);
	assert_int_equal(b->wait_ms, 0);
	assert_string_equal(b->auth_key_file, "");
}

static void good_values(void **state)
{
	const struct bond_config *b;

	(void)state;
	load_text("\xef\xbb\xbf[bond0] ; all of it\r\n"
		      "  members = netdev:ens1f0np0 , pci:17:00.1,\r\n"
		      "\tguid:0x506B:4b03:00c2:1a2e ; the third\r\n"
		      "    rxe-4.5_x\r\n"
		      "  stripe_above=1m\n  order_below = 0 ; none\nordering: strict\n"
		      "mode = backup\ncontrol_port = 1\nauth_key_file = /etc/some key\n"
		      "weights = 100:50 : 1:7\nsplit_send = always\ntraffic_class = 106\n"
		      "sl = 3\ntimeout = auto\nretry_cnt = 7\nqps_per_member = 4\n"
		      "# the next one\n[b-2.x_y]\nmembers=q");
	assert_string_equal(said.text, "");
	assert_int_equal(c.num_bonds, 2);
	b = c.bonds;
	assert_int_equal(b->num_members, 4);
	assert_int_equal(b->members[0].kind, CONFIG_MEMBER_NETDEV);
	assert_string_equal(b->members[0].text, "ens1f0np0");
	assert_int_equal(b->members[1].kind, CONFIG_MEMBER_PCI);
	assert_string_equal(b->members[1].text, "0000:17:00.1");
	assert_int_equal(b->members[2].kind, CONFIG_MEMBER_GUID);
	assert_string_equal(b->members[2].text, "506b4b0300c21a2e");
	assert_int_equal(b->members[3].kind, CONFIG_MEMBER_NAME);
	assert_string_equal(b->members[3].text, "rxe-4.5_x");
	assert_int_equal(b->stripe_above, 1 << 20);
	assert_int_equal(b->order_below, 0);
	assert_int_equal(b->ordering, CONFIG_ORDERING_STRICT);
	assert_int_equal(b->mode, CONFIG_MODE_BACKUP);
	assert_int_equal(b->split_send, CONFIG_SPLIT_SEND_ALWAYS);
	assert_int_equal(b->control_port, 1);
	assert_string_equal(b->auth_key_file, "/etc/some key");
	assert_int_equal(b->num_weights, 4);
	assert_int_equal(b->weights[0], 100);
	assert_int_equal(b->weights[3], 7);
	assert_int_equal(b->traffic_class, 106);
	assert_int_equal(b->sl, 3);
	assert_int_equal(b->timeout, CONFIG_AUTO);
	assert_int_equal(b->retry_cnt, 7);
	assert_int_equal(b->qps_per_member, 4);
	assert_string_equal(c.bonds[1].name, "b-2.x_y");
}

static void order_below_follows_stripe_above(void **state)
{
	(void)state;
	load_text("[bond0]\nmembers = a\nstripe_above = 64K\n");
	assert_int_equal(c.bonds[0].stripe_above, 65536);
	assert_int_equal(c.bonds[0].order_below, 65536);
}

static void sixteen_members(void **state)
{
	char text[1024] = "[bond0]\nmembers =\n";

	(void)state;
	for (int i = 0; i < 16; i++)
		sprintf(text + strlen(text), "  pci:0000:%02x:00.0%s\n", i, i % 3 ? "," : "");
	load_text(text);
	assert_string_equal(said.text, "");
	assert_int_equal(c.bonds[0].num_members, 16);
	strcat(text, "  pci:0000:10:00.0\n");
	load_text(text);
	expect_said("bond0", 19, "one too many", "1 to 16");
	assert_int_equal(c.num_bonds, 0);
}

struct bad {
	const char *text;
	int line;
	const char *word, *allowed;
};

static const struct bad bad_cases[] = {
	{ "[bond0]\nmembers = a\nspeed = 3", 3, "\"speed\"", "stripe_above, order_below" },
	{ "[bond0]\nmembers = a\nwait_ms = 3", 3, "\"wait_ms\"", "control_port" },
	{ "[bond0]\nmembers = a\n = 3", 3, "\"\"", "control_port" },
	{ "[bond0]\nmembers = a\nmode", 3, "says nothing", "KEY = VALUE" },
	{ "[bond0]\nmembers = a, b\nmembers = c", 3, "in line 4", "once" },
	{ "[bond0]\nmembers = a\nsl = 1\nsl = 1", 4, "in line 5", "once" },
	{ "[bond0]\nmembers = a\n[bond0]\nsl = 1", 3, "in line 3", "one section" },
	{ "[bond0]", 1, "no members", "1 to 16" },
	{ "[bond0]\nsl = 1", 1, "no members", "guid:" },
	{ "[bond0]\nsl = 1\nmembers =", 3, "no members", "pci:" },
	{ "[bond0]\nmembers = a,,b", 2, "\"\" is no device", "NAME" },
	{ "[bond0]\nmembers = a b", 2, "\"a b\" is no device", "commas" },
	{ "[bond0]\nmembers = a # b", 2, "is no device", "commas" },
	{ "[bond0]\nmembers = a, /dev/b", 2, "is no device", "NAME" },
	{ "[bond0]\nmembers = a, ..", 2, "is no device", "NAME" },
	{ "[bond0]\nmembers = a, b, a", 2, "\"a\" is there twice", "different" },
	{ "[bond0]\nmembers = a, b,\n c,\n a", 4, "\"a\" is there twice", "different" },
	{ "[bond0]\nmembers = pci:17:00.0, pci:0000:17:00.0", 2, "twice", "different" },
	{ "[bond0]\nmembers = guid:0x506B4b0300c21a2e, guid:506b:4b03:00c2:1a2e", 2,
	  "twice", "different" },
	{ "[bond0]\nmembers = pci:17:00", 2, "\"pci:17:00\"", "pci:ADDRESS" },
	{ "[bond0]\nmembers = pci:17:00.8", 2, "\"pci:17:00.8\"", "pci:ADDRESS" },
	{ "[bond0]\nmembers = pci:17:00.0x", 2, "\"pci:17:00.0x\"", "pci:ADDRESS" },
	{ "[bond0]\nmembers = pci:-1:00.0", 2, "\"pci:-1:00.0\"", "pci:ADDRESS" },
	{ "[bond0]\nmembers = guid:12", 2, "\"guid:12\"", "guid:NUMBER" },
	{ "[bond0]\nmembers = guid:506b4b0300c21a2e0", 2, "no device", "guid:NUMBER" },
	{ "[bond0]\nmembers = netdev:", 2, "\"netdev:\"", "netdev:NAME" },
	{ "[bond0]\nmembers = netdev:a234567890123456", 2, "no device", "netdev:NAME" },
	{ "[bond0]\nmembers = usb:3", 2, "\"usb:3\"", "netdev:NAME" },
	{ "[bond0]\nmembers = a\nstripe_above = 4095", 3, "4095", "4k to 1024m bytes" },
	{ "[bond0]\nmembers = a\nstripe_above = 1025m", 3, "1025m", "4k to 1024m bytes" },
	{ "[bond0]\nmembers = a\nstripe_above = 16g", 3, "16g", "with k or m" },
	{ "[bond0]\nmembers = a\nstripe_above = 16 k", 3, "16 k", "with k or m" },
	{ "[bond0]\nmembers = a\nstripe_above = 16kb", 3, "16kb", "with k or m" },
	{ "[bond0]\nmembers = a\nstripe_above = -16k", 3, "-16k", "with k or m" },
	{ "[bond0]\nmembers = a\norder_below = 99999999999999999999", 3, "9999",
	  "0 to 1024m" },
	{ "[bond0]\nmembers = a\norder_below =", 3, "\"\"", "0 to 1024m" },
	{ "[bond0]\nmembers = a\nordering = none", 3, "\"none\"",
	  "memory | completion | strict" },
	{ "[bond0]\nmembers = a\nmode = stripes", 3, "\"stripes\"", "stripe | backup" },
	{ "[bond0]\nmembers = a\nsplit_send = never", 3, "never", "writable | always" },
	{ "[bond0]\nmembers = a\ncontrol_port = 0", 3, "\"0\"", "1 to 65535" },
	{ "[bond0]\nmembers = a\ncontrol_port = 65536", 3, "65536", "1 to 65535" },
	{ "[bond0]\nmembers = a\ncontrol_port = auto", 3, "auto", "1 to 65535" },
	{ "[bond0]\nmembers = a\ntraffic_class = 256", 3, "256", "auto, or 0 to 255" },
	{ "[bond0]\nmembers = a\nsl = 16", 3, "16", "auto, or 0 to 15" },
	{ "[bond0]\nmembers = a\ntimeout = 0", 3, "\"0\"", "auto, or 1 to 31" },
	{ "[bond0]\nmembers = a\nretry_cnt = 8", 3, "\"8\"", "auto, or 0 to 7" },
	{ "[bond0]\nmembers = a\nqps_per_member = 9", 3, "\"9\"", "1 to 8" },
	{ "[bond0]\nqps_per_member = 8\nmembers = a, b, c", 2, "3 members", "at most 16" },
	{ "[bond0]\nmembers = a, b\nweights = 100", 3, "1 numbers for 2", "for each" },
	{ "[bond0]\nweights = 1:2:3\nmembers = a, b", 2, "3 numbers for 2", "for each" },
	{ "[bond0]\nmembers = a, b\nweights = 100:0", 3, "100:0", "1 to 1000000" },
	{ "[bond0]\nmembers = a, b\nweights = 100,50", 3, "100,50", "100:50" },
	{ "[bond0]\nmembers = a, b\nweights = 100:50:", 3, "100:50:", "100:50" },
	{ "[bond0]\nmembers = a\nauth_key_file = key", 3, "\"key\"", "absolute path" },
	{ "[bond0]\nmembers = a\nsl = 1\n  2", 4, "one value", "only members" },
	{ "[bond0]\nmembers = m0", 2, "[good]", "no other bond" },
	{ "[bond0]\nmembers = a, b, bond0", 2, "\"bond0\" is the bond", "first member alone" },
	{ "[bond0]\nmembers = a\nauth_key_file = /k", 3, "[good], which has the same control_port",
	  "what [good] has (none), or another control_port" },
	{ "[bond0]\nmembers = a\nmode = \x01\xff", 3, "\"??\"", "stripe" },
};

static void bad_lines(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad_cases) / sizeof(bad_cases[0]); i++)
		expect_bad(bad_cases[i].text, bad_cases[i].line, bad_cases[i].word,
			   bad_cases[i].allowed);
}

static void bad_headings_take_no_other_bond(void **state)
{
	static const char *const headings[] = {
		"[bond0", "[]", "[a b]", "[bond0] x", "[.]", "[a/b]",
		"[a234567890123456789012345678901234567890123456789012345678901234]",
	};
	char text[512];

	(void)state;
	for (size_t i = 0; i < sizeof(headings) / sizeof(headings[0]); i++) {
		snprintf(text, sizeof(text), "[good]\nmembers=a\n%s\nmembers = b\nfoo = bar\n",
			 headings[i]);
		load_text(text);
		expect_said("", 3, "does not begin a bond", "[BOND]");
		assert_int_equal(c.num_bonds, 1);
		assert_int_equal(c.bonds[0].num_members, 1);
	}
}

static void longest_bond_name(void **state)
{
	(void)state;
	load_text("[a23456789012345678901234567890123456789012345678901234567890123]\n"
		      "members = a\n");
	assert_string_equal(said.text, "");
	assert_int_equal(strlen(c.bonds[0].name), 63);
}

static void key_before_a_section(void **state)
{
	(void)state;
	load_text("\nmode = stripe\n[bond0]\nmembers = a\n");
	expect_said("", 2, "before the first section", "[BOND]");
	assert_int_equal(c.num_bonds, 1);
}

/* A line of size bytes that begins so, then a good bond. */
static void load_long(const char *head, const char *begin, size_t size)
{
	char *text = malloc(size + 256);
	size_t n = sprintf(text, "%s%s", head, begin);

	memset(text + n, 'y', size - strlen(begin));
	strcpy(text + strlen(head) + size, "\n[last]\nmembers = b\n");
	load_text(text);
	free(text);
}

static void long_lines(void **state)
{
	static const char *const begins[] = { "members = ", "", "   ", "auth_key_file = /", "z" };
	(void)state;
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		for (size_t size = 198; size < 10001; size += 9802) {
			load_long("[bond0]\n", begins[i], size);
			expect_said("bond0", 2, size == 198 ? "198 bytes" : "10000 bytes", "197");
			assert_int_equal(c.num_bonds, 1);
			assert_string_equal(c.bonds[0].name, "last");
		}
	load_long("[bond0]\nmembers = a\ncontrol_port = 7\n", "auth_key_file = /", 197);
	assert_string_equal(said.text, "");
	assert_int_equal(strlen(c.bonds[0].auth_key_file), 197 - 16);
	load_long("[bond0]\nmembers = a\n", "; talk ", 10000);
	assert_string_equal(said.text, "");
	assert_int_equal(c.num_bonds, 2);
	load_long("[bond0]\nmembers = a\n", "[", 10000);
	expect_said("", 3, "10000 bytes", "197");
	assert_int_equal(c.num_bonds, 2);
}

static void zero_byte(void **state)
{
	static const char text[] = "[bond0]\nmembers = a\nmode = stripe\0x\n[last]\nmembers=b\n";
	(void)state;
	write_bytes(text, sizeof(text) - 1);
	assert_int_equal(load(), 0);
	expect_said("bond0", 3, "zero byte", "text");
	assert_int_equal(c.num_bonds, 1);
}

static void two_errors_two_lines(void **state)
{
	(void)state;
	load_text("[bond0]\nmembers = a\nsl = x\nmode = y\n");
	assert_int_equal(said.count, 2);
	assert_int_equal(c.num_bonds, 0);
}

static void no_file_is_silent(void **state)
{
	(void)state;
	unlink(path);
	assert_int_equal(load(), 0);
	assert_int_equal(said.count, 0);
	assert_int_equal(c.num_bonds, 0);
	setenv("RDMA_BOND_CONF", "/dev/null", 1);
	assert_int_equal(load(), 0);
	assert_int_equal(said.count, 0);
	setenv("RDMA_BOND_CONF", path, 1);
}

static void unreadable_files(void **state)
{
	(void)state;
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(load(), EISDIR);
	expect_said("", 0, "Is a directory", "a readable file");
	assert_int_equal(c.num_bonds, 0);
	rmdir(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(load(), EINVAL);
	expect_said("", 0, "cannot be read", "a readable file");
	unlink(path);
	assert_int_equal(symlink(path, path), 0);
	assert_int_equal(load(), ELOOP);
	expect_said("", 0, "cannot be read", "a readable file");
	unlink(path);
	write_bytes("[bond0]\nmembers=a\n", 18);
	chmod(path, 0);
	if (geteuid()) {	/* root reads it all the same */
		assert_int_equal(load(), EACCES);
		expect_said("", 0, "Permission denied", "a readable file");
	} else {
		assert_int_equal(load(), 0);
		assert_int_equal(c.num_bonds, 1);
	}
	unlink(path);
}

static void environment_overrides(void **state)
{
	(void)state;
	setenv("RDMA_BOND_STRIPE_ABOVE", "32k", 1);
	setenv("RDMA_BOND_ORDERING", "completion", 1);
	setenv("RDMA_BOND_WAIT_MS", "600000", 1);
	setenv("RDMA_BOND_MEMBERS", "z", 1);
	load_text("[bond0]\nmembers = a\nstripe_above = 8k\n[bond1]\nmembers = b\n");
	assert_string_equal(said.text, "");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(c.bonds[i].stripe_above, 32768);
		assert_int_equal(c.bonds[i].order_below, 32768);
		assert_int_equal(c.bonds[i].ordering, CONFIG_ORDERING_COMPLETION);
		assert_int_equal(c.bonds[i].wait_ms, 600000);
		assert_string_equal(c.bonds[i].members[0].text, i ? "b" : "a");
	}
	setenv("RDMA_BOND_WAIT_MS", "600001", 1);
	load_text("[bond0]\nmembers = a\n[bond1]\nmembers = b\n");
	assert_int_equal(said.count, 1);
	assert_string_equal(said.text, "RDMA_BOND_WAIT_MS: \"600001\" is not a value for it; "
				       "allowed: 0 to 600000 ms");
	assert_int_equal(c.num_bonds, 0);
	unsetenv("RDMA_BOND_STRIPE_ABOVE");
	unsetenv("RDMA_BOND_ORDERING");
	unsetenv("RDMA_BOND_WAIT_MS");
	unsetenv("RDMA_BOND_MEMBERS");
}

static void expect_variable(const char *name, const char *value, const char *bonds, const char *text)
{
	setenv(name, value, 1);
	load_text(bonds);
	assert_int_equal(said.count, 1);
	assert_string_equal(said.text, text);
	assert_string_equal(said.bond, "");
	assert_int_equal(c.num_bonds, 0);
	unsetenv(name);
}

/* A value that is good by itself and does not fit one of the sections. */
static void variable_that_does_not_fit(void **state)
{
	(void)state;
	expect_variable("RDMA_BOND_WEIGHTS", "1:2:3",
			"[bond0]\nmembers = a, b, c\n[bond1]\nmembers = d, e\nweights = 1:2\n",
			"RDMA_BOND_WEIGHTS: weights: 3 numbers for 2 members of [bond1]; allowed: "
			"auto, or one number from 1 to 1000000 for each member, as 100:50");
	expect_variable("RDMA_BOND_QPS_PER_MEMBER", "8",
			"[bond0]\nmembers = a, b, c\n[bond1]\nmembers = d, e, f\n",
			"RDMA_BOND_QPS_PER_MEMBER: qps_per_member: 8 on each of 3 members of "
			"[bond0]; allowed: members times qps_per_member at most 16");
}

static void same_port_same_key(void **state)
{
	(void)state;
	load_text("[a]\nmembers = a\nauth_key_file = /k\n[b]\nmembers = b\nauth_key_file = /k\n"
		  "[c]\nmembers = c\ncontrol_port = 7\n");
	assert_string_equal(said.text, "");
	load_text("[a]\nmembers = a\nauth_key_file = /k\n[b]\nmembers = b\nauth_key_file = /l\n");
	expect_said("b", 6, "same control_port 18791", "what [a] has (/k)");
	assert_int_equal(c.num_bonds, 1);
}

static struct member_spec spec_of(const char *text)
{
	struct member_spec spec;
	char all[256];

	snprintf(all, sizeof(all), "[bond0]\nmembers = %s\n", text);
	load_text(all);
	assert_int_equal(c.num_bonds, 1);
	spec = c.bonds[0].members[0];
	return spec;
}

static void member_matching(void **state)
{
	static const struct config_device_info dev = {
		.name = "mlx5_0", .netdev = "ens1", .pci = "0000:17:00.0",
		.guid = "506b:4b03:00c2:1a2e",
	}, nothing = { .name = "x", .guid = "" };
	static const char *const yes[] = {
		"mlx5_0", "netdev:ens1", "pci:17:0.0", "pci:0000:17:00.0", "guid:506B4B0300C21A2E",
	};
	static const char *const no[] = {
		"mlx5_1", "ens1", "netdev:mlx5_0", "pci:17:0.1", "pci:0001:17:00.0",
		"guid:506B4B0300C21A2F", "mlx5_",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		struct member_spec spec = spec_of(yes[i]);

		assert_int_equal(config_member_matches(&spec, &dev), 1);
		assert_int_equal(config_member_matches(&spec, &nothing), 0);
	}
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		struct member_spec spec = spec_of(no[i]);

		assert_int_equal(config_member_matches(&spec, &dev), 0);
	}
}

static void renamed_device_has_the_bonds_name(void **state)
{
	const struct config_device_info old = { .name = "a" }, new = { .name = "bond0" };

	(void)state;
	load_text("[bond0]\nmembers = a, b\n");
	assert_int_equal(config_bond_named(c.bonds, &old), 0);
	assert_int_equal(config_bond_named(c.bonds, &new), 1);
}

/* Reads configuration.md without the backslashes that keep "|" in a cell of its table. */
static char *read_document(void)
{
	static char text[65536];
	char file[512];
	FILE *f;

	snprintf(file, sizeof(file), "%s", __FILE__);
	strcpy(strrchr(file, '/'), "/../../Documentation/configuration.md");
	f = fopen(file, "r");
	assert_non_null(f);
	assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
	fclose(f);
	for (char *s = text; (s = strstr(s, "\\|"));)
		memmove(s, s + 1, strlen(s));
	return text;
}

static void option_table_is_documented(void **state)
{
	char buf[256], head[400], tail[400], *row, *end, *document = read_document();
	struct config_option_text text;
	int n = 0;

	(void)state;
	for (; config_option_text(n, &text, buf, sizeof(buf)); n++) {
		const char *mark = *text.variable ? "`" : "|";

		assert_int_equal(text.in_file, strcmp(text.key, "wait_ms") != 0);
		snprintf(head, sizeof(head), "%s%s%s | %s |", mark, text.variable,
			 *text.variable ? mark : "", text.allowed);
		row = strstr(document, head);
		if (!row)
			fail_msg("%s: not in configuration.md: %s", text.key, head);
		end = strchr(row, '\n');
		snprintf(tail, sizeof(tail), "%s%s | %s |", text.def, *text.def ? "`" : "", text.help);
		if (strncmp(end - strlen(tail), tail, strlen(tail)))
			fail_msg("configuration.md says otherwise: %.*s", (int)(end - row), row);
	}
	assert_int_equal(n, 15);
}

static int set_up(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/conf", dir);
	return setenv("RDMA_BOND_CONF", path, 1);
}

static int tear_down(void **state)
{
	(void)state;
	free(c.bonds);
	unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_defaults),
		cmocka_unit_test(good_values),
		cmocka_unit_test(order_below_follows_stripe_above),
		cmocka_unit_test(sixteen_members),
		cmocka_unit_test(bad_lines),
		cmocka_unit_test(bad_headings_take_no_other_bond),
		cmocka_unit_test(longest_bond_name),
		cmocka_unit_test(key_before_a_section),
		cmocka_unit_test(long_lines),
		cmocka_unit_test(zero_byte),
		cmocka_unit_test(two_errors_two_lines),
		cmocka_unit_test(no_file_is_silent),
		cmocka_unit_test(unreadable_files),
		cmocka_unit_test(environment_overrides),
		cmocka_unit_test(variable_that_does_not_fit),
		cmocka_unit_test(same_port_same_key),
		cmocka_unit_test(member_matching),
		cmocka_unit_test(renamed_device_has_the_bonds_name),
		cmocka_unit_test(option_table_is_documented),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
