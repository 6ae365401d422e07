/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The option table, the parser of each type of value, and the comparison of a member specification
 * with a device. Pure: text in, values out.
 *
 * Not here: the file, its sections and its line numbers, which are in config.c.
 */
#include "config_option.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const ordering_names[] = { "memory", "completion", "strict", NULL };
static const char *const mode_names[] = { "stripe", "backup", NULL };
static const char *const split_send_names[] = { "writable", "always", NULL };

#define AT(field) offsetof(struct bond_config, field)

/* The only list of options. A default is text and goes through the same parser as a value. */
const struct option config_options[NUM_OPTIONS] = {
	[OPTION_MEMBERS] = {
		"members", TYPE_MEMBERS, AT(members), 1, BOND_MAX_MEMBERS, NULL, NULL, "",
		FLAG_NO_ENV,
		"The physical devices, the primary first.",
	},
	[OPTION_STRIPE_ABOVE] = {
		"stripe_above", TYPE_SIZE, AT(stripe_above), 4096, 1 << 30, "bytes", NULL, "16k", 0,
		"A WRITE or READ of this many bytes or more is cut over all paths.",
	},
	[OPTION_ORDER_BELOW] = {
		"order_below", TYPE_SIZE, AT(order_below), 0, 1 << 30, "bytes", NULL, "", 0,
		"With ordering = memory, a shorter WRITE or READ keeps its place on the lead. "
		"Without effect above stripe_above, whose value is the default.",
	},
	[OPTION_ORDERING] = {
		"ordering", TYPE_ENUM, AT(ordering), 0, 0, NULL, ordering_names, "memory", 0,
		"What a reader of the memory may rely on before it sees a completion.",
	},
	[OPTION_MODE] = {
		"mode", TYPE_ENUM, AT(mode), 0, 0, NULL, mode_names, "stripe", 0,
		"Use all members at once, or one and keep the others for its failure.",
	},
	[OPTION_CONTROL_PORT] = {
		"control_port", TYPE_INT, AT(control_port), 1, 65535, NULL, NULL, "18791", 0,
		"TCP port on which two bonds find each other; the same on every host.",
	},
	[OPTION_AUTH_KEY_FILE] = {
		"auth_key_file", TYPE_FILE, AT(auth_key_file), 0, 0, NULL, NULL, "", 0,
		"File with the secret that both ends of the control port must know.",
	},
	[OPTION_WEIGHTS] = {
		"weights", TYPE_WEIGHTS, AT(weights), 1, 1000000, NULL, NULL, "auto", 0,
		"Expected relative speed of each member until it has been measured.",
	},
	[OPTION_SPLIT_SEND] = {
		"split_send", TYPE_ENUM, AT(split_send), 0, 0, NULL, split_send_names, "writable",
		0,
		"Which posted receives a large SEND may be spread into: those in memory that the "
		"application itself made remotely writable, or all.",
	},
	[OPTION_TRAFFIC_CLASS] = {
		"traffic_class", TYPE_INT, AT(traffic_class), 0, 255, NULL, NULL, "auto", FLAG_AUTO,
		"GRH traffic class of the paths behind the first; auto: the application's.",
	},
	[OPTION_SL] = {
		"sl", TYPE_INT, AT(sl), 0, 15, NULL, NULL, "auto", FLAG_AUTO,
		"Service level of the paths behind the first; auto: the application's.",
	},
	[OPTION_TIMEOUT] = {
		"timeout", TYPE_INT, AT(timeout), 1, 31, NULL, NULL, "auto", FLAG_AUTO,
		"Ack timeout of the paths behind the first, 4.096 us times two to this power; "
		"auto: the application's.",
	},
	[OPTION_RETRY_CNT] = {
		"retry_cnt", TYPE_INT, AT(retry_cnt), 0, 7, NULL, NULL, "auto", FLAG_AUTO,
		"Retries of the paths behind the first; auto: the application's.",
	},
	[OPTION_QPS_PER_MEMBER] = {
		"qps_per_member", TYPE_INT, AT(qps_per_member), 1, 8, NULL, NULL, "1", 0,
		"Paths on each member, each a network flow of its own.",
	},
	[OPTION_WAIT_MS] = {
		"wait_ms", TYPE_INT, AT(wait_ms), 0, 600000, "ms", NULL, "0", FLAG_NO_FILE,
		"How long the step to RTS waits for the paths; for tests and benchmarks.",
	},
};

/* Sizes as one would write them: 16k, not 16384. */
static int put_number(char *buf, size_t size, const struct option *o, int value)
{
	if (o->type == TYPE_SIZE && value && value % (1 << 20) == 0)
		return snprintf(buf, size, "%dm", value >> 20);
	if (o->type == TYPE_SIZE && value && value % 1024 == 0)
		return snprintf(buf, size, "%dk", value >> 10);
	return snprintf(buf, size, "%d", value);
}

void option_allowed(const struct option *o, char *buf, size_t size)
{
	char min[16], max[16];
	size_t used = 0;

	put_number(min, sizeof(min), o, o->min);
	put_number(max, sizeof(max), o, o->max);
	switch (o->type) {
	case TYPE_INT:
	case TYPE_SIZE:
		snprintf(buf, size, "%s%s to %s%s%s%s", o->flags & FLAG_AUTO ? "auto, or " : "",
			 min, max, o->unit ? " " : "", o->unit ? o->unit : "",
			 o->type == TYPE_SIZE ? ", with k or m for 1024 or 1024 x 1024" : "");
		break;
	case TYPE_ENUM:
		for (int i = 0; o->names[i] && used < size; i++)
			used += snprintf(buf + used, size - used, "%s%s", i ? " | " : "",
					 o->names[i]);
		break;
	case TYPE_WEIGHTS:
		snprintf(buf, size, "auto, or one number from %s to %s for each member, as 100:50",
			 min, max);
		break;
	case TYPE_MEMBERS:
		snprintf(buf, size, "%s to %s of NAME, netdev:NAME, pci:ADDRESS or guid:NUMBER, "
			 "different, with commas between", min, max);
		break;
	case TYPE_FILE:
		snprintf(buf, size, "an absolute path of at most %d bytes, or nothing",
			 CONFIG_PATH_SIZE - 1);
		break;
	}
}

void option_variable(const struct option *o, char *buf, size_t size)
{
	snprintf(buf, size, "RDMA_BOND_%s", o->key);
	for (; *buf; buf++)
		*buf = toupper((unsigned char)*buf);
}

int option_find(const char *key)
{
	for (int i = 0; i < NUM_OPTIONS; i++) {
		const struct option *o = &config_options[i];

		if (!strcmp(o->key, key) && !(o->flags & FLAG_NO_FILE))
			return i;
	}
	return -1;
}

/* Plain decimal digits; *end is behind them. False where there is none or it does not fit. */
static bool parse_digits(const char *text, long long *value, const char **end)
{
	*value = 0;
	if (!isdigit((unsigned char)*text))
		return false;
	for (; isdigit((unsigned char)*text); text++) {
		*value = *value * 10 + (*text - '0');
		if (*value > INT_MAX)
			return false;
	}
	*end = text;
	return true;
}

static bool parse_number(const struct option *o, const char *text, int *out)
{
	long long value;
	const char *end;

	if ((o->flags & FLAG_AUTO) && !strcmp(text, "auto")) {
		*out = CONFIG_AUTO;
		return true;
	}
	if (!parse_digits(text, &value, &end))
		return false;
	if (o->type == TYPE_SIZE && *end) {
		int c = tolower((unsigned char)*end++);

		if (c != 'k' && c != 'm')
			return false;
		value <<= c == 'k' ? 10 : 20;
	}
	if (*end || value < o->min || value > o->max)
		return false;
	*out = value;
	return true;
}

static bool parse_enum(const struct option *o, const char *text, int *out)
{
	for (int i = 0; o->names[i]; i++)
		if (!strcmp(o->names[i], text)) {
			*out = i;
			return true;
		}
	return false;
}

static bool parse_weights(const struct option *o, const char *text, struct bond_config *bond)
{
	long long value;

	bond->num_weights = 0;
	if (!strcmp(text, "auto"))
		return true;
	for (;;) {
		if (bond->num_weights == BOND_MAX_MEMBERS || !parse_digits(text, &value, &text) ||
		    value < o->min || value > o->max)
			return false;
		bond->weights[bond->num_weights++] = value;
		text += strspn(text, " \t");
		if (!*text)
			return true;
		if (*text != ':')
			return false;
		text += 1 + strspn(text + 1, " \t");
	}
}

static bool parse_file(const char *text, char out[CONFIG_PATH_SIZE])
{
	if (strlen(text) >= CONFIG_PATH_SIZE || (*text && *text != '/'))
		return false;
	strcpy(out, text);
	return true;
}

bool config_name_ok(const char *text, size_t max)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789_.-";
	size_t n = strspn(text, good);

	return n && n <= max && !text[n] && strcmp(text, ".") && strcmp(text, "..");
}

/* [DDDD:]BB:DD.F; domains may be longer (virtual ones have five digits or more). */
static bool normal_pci(char out[CONFIG_NAME_SIZE], const char *text)
{
	unsigned int domain = 0, bus, device, function;
	int n = -1;

	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &n) != 4 ||
	    n < 0) {
		domain = 0;
		n = -1;
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &n) != 3 || n < 0)
			return false;
	}
	if (text[n] || strpbrk(text, " \t+-xX") || device > 31 || function > 7)
		return false;
	snprintf(out, CONFIG_NAME_SIZE, "%04x:%02x:%02x.%x", domain, bus, device, function);
	return true;
}

/* 16 hexadecimal digits, with 0x in front or colons between as one likes. */
static bool normal_guid(char out[CONFIG_NAME_SIZE], const char *text)
{
	int n = 0;

	if (text[0] == '0' && tolower((unsigned char)text[1]) == 'x')
		text += 2;
	for (; *text && n < 17; text++) {
		if (*text == ':' && n)
			continue;
		if (!isxdigit((unsigned char)*text))
			return false;
		out[n++] = tolower((unsigned char)*text);
	}
	out[n] = 0;
	return n == 16;
}

bool member_spec_parse(struct member_spec *spec, const char *text)
{
	memset(spec, 0, sizeof(*spec));
	if (!strncmp(text, "netdev:", 7)) {
		spec->kind = CONFIG_MEMBER_NETDEV;
		snprintf(spec->text, sizeof(spec->text), "%.63s", text + 7);
		return config_name_ok(text + 7, 15);
	}
	if (!strncmp(text, "pci:", 4)) {
		spec->kind = CONFIG_MEMBER_PCI;
		return normal_pci(spec->text, text + 4);
	}
	if (!strncmp(text, "guid:", 5)) {
		spec->kind = CONFIG_MEMBER_GUID;
		return normal_guid(spec->text, text + 5);
	}
	spec->kind = CONFIG_MEMBER_NAME;
	snprintf(spec->text, sizeof(spec->text), "%.63s", text);
	return config_name_ok(text, CONFIG_NAME_SIZE - 1);
}

bool member_spec_equal(const struct member_spec *a, const struct member_spec *b)
{
	return a->kind == b->kind && !strcmp(a->text, b->text);
}

/* All types but TYPE_MEMBERS, which is no single value. */
bool option_parse(const struct option *o, const char *text, struct bond_config *bond)
{
	void *field = (char *)bond + o->offset;

	switch (o->type) {
	case TYPE_INT:
	case TYPE_SIZE:
		return parse_number(o, text, field);
	case TYPE_ENUM:
		return parse_enum(o, text, field);
	case TYPE_WEIGHTS:
		return parse_weights(o, text, bond);
	case TYPE_FILE:
		return parse_file(text, field);
	case TYPE_MEMBERS:
		break;
	}
	return true;
}

void option_set_defaults(struct bond_config *bond)
{
	for (int i = 0; i < NUM_OPTIONS; i++)
		if (*config_options[i].def)
			option_parse(&config_options[i], config_options[i].def, bond);
	bond->order_below = CONFIG_AUTO;
}

static bool known(const char *text)
{
	return text && *text;
}

int config_member_matches(const struct member_spec *spec, const struct config_device_info *dev)
{
	char text[CONFIG_NAME_SIZE];

	switch (spec->kind) {
	case CONFIG_MEMBER_NAME:
		return known(dev->name) && !strcmp(dev->name, spec->text);
	case CONFIG_MEMBER_NETDEV:
		return known(dev->netdev) && !strcmp(dev->netdev, spec->text);
	case CONFIG_MEMBER_PCI:
		return known(dev->pci) && normal_pci(text, dev->pci) && !strcmp(text, spec->text);
	case CONFIG_MEMBER_GUID:
		return known(dev->guid) && normal_guid(text, dev->guid) &&
		       !strcmp(text, spec->text);
	}
	return 0;
}

int config_bond_named(const struct bond_config *bond, const struct config_device_info *dev)
{
	return known(dev->name) && !strcmp(dev->name, bond->name);
}

int config_option_text(int index, struct config_option_text *text, char *buf, int size)
{
	const struct option *o;

	if (index < 0 || index >= NUM_OPTIONS || size < OPTION_VARIABLE_SIZE + OPTION_ALLOWED_SIZE)
		return 0;
	o = &config_options[index];
	*text = (struct config_option_text){
		.key = o->key,
		.variable = "",
		.in_file = !(o->flags & FLAG_NO_FILE),
		.allowed = buf + OPTION_VARIABLE_SIZE,
		.def = o->def,
		.help = o->help,
	};
	option_allowed(o, buf + OPTION_VARIABLE_SIZE, size - OPTION_VARIABLE_SIZE);
	if (!(o->flags & FLAG_NO_ENV)) {
		option_variable(o, buf, OPTION_VARIABLE_SIZE);
		text->variable = buf;
	}
	return 1;
}
