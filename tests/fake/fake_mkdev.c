/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * fake-ctl: makes the devices of a fake-run (the sysfs tree that libibverbs reads and the control
 * file) and sets or shows switches while it runs.
 *
 *	fake-ctl create DIR NAME...     makes DIR/sys and DIR/ctl
 *	fake-ctl set [DEV.]KEY=VALUE... DEV left out: every device
 *	fake-ctl get DEV.KEY
 *	fake-ctl show | help
 *
 * NAME is name[=IPv4]. Names ending in a digit get 127.0.<digit + 1>.<host>, where host is 1 for a
 * and 2 for b in names of two letters (a0, b0), and 1 in others (fake0).
 * Needs $FAKE_DIR except for create. Not here: mounts and environment, see fake-run.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_ctl.h"

static __attribute__((format(printf, 2, 3))) void put(const char *text, const char *fmt, ...)
{
	char path[4096];
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	for (char *p = path + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = 0;
		if (mkdir(path, 0755) && errno != EEXIST)
			err(1, "%s", path);
	}
	f = fopen(path, "w");
	if (!f || fprintf(f, "%s\n", text) < 0 || fclose(f))
		err(1, "%s", path);
}

static const char *gid_text(const uint8_t *gid)
{
	static char text[64];
	char *p = text;

	for (int i = 0; i < 16; i += 2)
		p += sprintf(p, "%s%02x%02x", i ? ":" : "", gid[i], gid[i + 1]);
	return text;
}

static void default_address(const char *name, uint32_t index, char *out, size_t size)
{
	size_t len = strlen(name);
	unsigned int rail = index, host = 1;

	if (len && isdigit((unsigned char)name[len - 1]))
		rail = name[len - 1] - '0';
	if (len == 2 && islower((unsigned char)name[0]))
		host = name[0] - 'a' + 1;
	snprintf(out, size, "127.0.%u.%u", rail + 1, host);
}

static void make_ctl_dev(struct fake_ctl_dev *dev, const char *arg, uint32_t index)
{
	char addr[32];
	const char *eq = strchr(arg, '=');
	size_t len = eq ? (size_t)(eq - arg) : strlen(arg);
	uint8_t *v1 = dev->gid[0], *v2 = dev->gid[1];

	if (!len || len >= FAKE_NAME_MAX)
		errx(1, "%s: bad device name", arg);
	memcpy(dev->name, arg, len);
	if (eq)
		snprintf(addr, sizeof(addr), "%s", eq + 1);
	else
		default_address(dev->name, index, addr, sizeof(addr));
	v2[10] = v2[11] = 0xff;
	if (inet_pton(AF_INET, addr, v2 + 12) != 1)
		errx(1, "%s: not an IPv4 address", addr);
	v1[0] = 0xfe;
	v1[1] = 0x80;
	v1[11] = 0xff;
	v1[12] = 0xfe;
	memcpy(v1 + 8, "\x02\xfa\xce", 3);
	memcpy(v1 + 13, v2 + 13, 3);
	for (int i = 0; i < FAKE_NUM_KNOBS; i++)
		atomic_store(&dev->knob[i], fake_knob_default(i));
}

static void make_sysfs(const char *dir, struct fake_ctl_dev *dev, uint32_t index)
{
	char base[4096], text[64];
	int n;

	n = snprintf(base, sizeof(base), "%s/sys/class/infiniband_verbs/uverbs%u", dir, index);
	if (n >= (int)sizeof(base))
		errx(1, "%s: too long", dir);
	put(dev->name, "%s/ibdev", base);
	put("1:7", "%s/dev", base);
	put("1", "%s/abi_version", base);
	snprintf(base, sizeof(base), "%s/sys/class/infiniband/%s", dir, dev->name);
	put("1: CA", "%s/node_type", base);
	put("fake-1.0", "%s/fw_ver", base);
	snprintf(text, sizeof(text), "%02x%02x:%02x%02x:%02x%02x:%02x%02x", dev->gid[0][8],
		 dev->gid[0][9], dev->gid[0][10], dev->gid[0][11], dev->gid[0][12],
		 dev->gid[0][13], dev->gid[0][14], dev->gid[0][15]);
	put(text, "%s/node_guid", base);
	put(text, "%s/sys_image_guid", base);
	put("Ethernet", "%s/ports/1/link_layer", base);
	put("4: ACTIVE", "%s/ports/1/state", base);
	put("0xffff", "%s/ports/1/pkeys/0", base);
	for (int i = 0; i < FAKE_MAX_GIDS; i++) {
		put(gid_text(dev->gid[i]), "%s/ports/1/gids/%d", base, i);
		put(i % 2 ? "RoCE v2" : "IB/RoCE v1", "%s/ports/1/gid_attrs/types/%d", base, i);
		if (i < 2)
			put("lo", "%s/ports/1/gid_attrs/ndevs/%d", base, i);
	}
}

static int create(const char *dir, int num, char **names)
{
	struct fake_ctl *ctl;
	char path[4096];
	int fd;

	if (num < 1 || num > FAKE_MAX_DEVS)
		errx(1, "1 to %d devices, not %d", FAKE_MAX_DEVS, num);
	snprintf(path, sizeof(path), "%s/ctl", dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0 || ftruncate(fd, sizeof(*ctl)))
		err(1, "%s", path);
	ctl = mmap(NULL, sizeof(*ctl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ctl == MAP_FAILED)
		err(1, "%s", path);
	close(fd);
	for (int i = 0; i < num; i++) {
		make_ctl_dev(&ctl->dev[i], names[i], i);
		for (int j = 0; j < i; j++)
			if (!strcmp(ctl->dev[i].name, ctl->dev[j].name) ||
			    !memcmp(ctl->dev[i].gid[1], ctl->dev[j].gid[1], 16))
				errx(1, "%s and %s: same name or address", names[i], names[j]);
		make_sysfs(dir, &ctl->dev[i], i);
	}
	put("6", "%s/sys/class/infiniband_verbs/abi_version", dir);
	ctl->num_devs = num;
	ctl->size_bytes = sizeof(*ctl);
	return 0;
}

static int set(int num, char **args)
{
	for (int i = 0; i < num; i++) {
		char *key = args[i], *dot, *eq = strchr(args[i], '='), *end;
		const char *dev = NULL;
		long long value;
		int knob, ret;

		if (!eq)
			errx(2, "%s: not [DEV.]KEY=VALUE", args[i]);
		*eq = 0;
		dot = strrchr(args[i], '.');
		if (dot) {
			*dot = 0;
			dev = args[i];
			key = dot + 1;
		}
		value = strtoll(eq + 1, &end, 0);
		knob = fake_knob_find(key);
		if (knob < 0 || end == eq + 1 || *end)
			errx(2, "%s: no such key or bad value '%s'", key, eq + 1);
		ret = fake_ctl_set(dev, knob, value);
		if (ret)
			errx(1, "%s: %s", dev ? dev : "no devices", strerror(ret));
	}
	return 0;
}

static int get(char *arg)
{
	char *dot = strrchr(arg, '.');
	int knob;

	if (!dot || (knob = fake_knob_find(dot + 1)) < 0)
		errx(2, "%s: not DEV.KEY", arg);
	*dot = 0;
	if (!fake_ctl_dev(arg))
		err(1, "%s", arg);
	printf("%lld\n", (long long)fake_ctl_get(arg, knob));
	return 0;
}

static int show(void)
{
	struct fake_ctl *ctl = fake_ctl_map();

	if (!ctl)
		err(1, "FAKE_DIR");
	for (uint32_t i = 0; i < ctl->num_devs; i++)
		for (int k = 0; k < FAKE_NUM_KNOBS; k++)
			printf("%s.%s=%lld\n", ctl->dev[i].name, fake_knob_name(k),
			       (long long)fake_knob_get(&ctl->dev[i], k));
	return 0;
}

static int help(void)
{
	for (int k = 0; k < FAKE_NUM_KNOBS; k++)
		printf("%-18s %8lld  %s\n", fake_knob_name(k), (long long)fake_knob_default(k),
		       fake_knob_help(k));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 3 && !strcmp(argv[1], "create"))
		return create(argv[2], argc - 3, argv + 3);
	if (argc > 2 && !strcmp(argv[1], "set"))
		return set(argc - 2, argv + 2);
	if (argc == 3 && !strcmp(argv[1], "get"))
		return get(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "show"))
		return show();
	if (argc == 2 && !strcmp(argv[1], "help"))
		return help();
	errx(2, "usage: fake-ctl create DIR NAME... | set [DEV.]KEY=VALUE... | get DEV.KEY | "
		"show | help");
}
