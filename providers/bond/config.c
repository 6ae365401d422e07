/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads the configuration: the file, its sections, and the overrides in the environment.
 *
 * libinih splits the lines; its reader callback is ours, because only there the number and the
 * length of a line are known. Its process-wide settings belong to the application and stay as they
 * are, so a line has to fit its buffer (200 bytes in Debian); a longer one is an error here and
 * never cut short in silence. A list may go on in indented lines that have no '='.
 *
 * Not here: keys and values (config_option.c), whether the devices exist, what the values do.
 * Next: config_option.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE	/* secure_getenv */
#endif
#include "config.h"
#include "config_option.h"
#include "plan.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	SHOWN = 48,		/* bytes of a wrong value that are repeated in the message */
	TEXT_SIZE = 1024,
};

/* A section while it is being read. */
struct draft {
	struct bond_config bond;
	bool bad;
	int line[NUM_OPTIONS];	/* where the option was given, 0 if it was not */
	bool from_env[NUM_OPTIONS];	/* its variable stands for what the file says */
};

struct parser {
	FILE *file;
	const char *path;
	config_report_fn report;
	void *report_arg;
	struct draft *drafts;
	int num_drafts;
	int error;		/* errno that ends the reading */
	int line;		/* of what the reader handed out last, from 1 */
	bool in_section;	/* the last draft is open */
	bool skip_section;	/* a section that cannot be one: its keys mean nothing */
	bool pending;		/* the line should come back through on_value() */
	bool indented;		/* and goes on with the list above */
	bool bad_variable;	/* ends all bonds */
	int last_option;	/* -1: none in this section yet */
	char allowed[OPTION_ALLOWED_SIZE];	/* the last answer of allowed_of() */
};

static struct draft *current(struct parser *p)
{
	return p->in_section ? &p->drafts[p->num_drafts - 1] : NULL;
}

/* Values come from a file that may hold anything; a message is one printable line. */
static void show(char out[SHOWN + 4], const char *value)
{
	size_t n = 0;

	for (; value[n] && n < SHOWN; n++)
		out[n] = isprint((unsigned char)value[n]) ? value[n] : '?';
	strcpy(out + n, value[n] ? "..." : "");
}

static void say(struct parser *p, struct draft *d, const char *where, const char *what,
		const char *allowed)
{
	char text[TEXT_SIZE];

	if (d)
		d->bad = true;
	snprintf(text, sizeof(text), "%s: %s; allowed: %s", where, what, allowed);
	if (p->report)
		p->report(p->report_arg, d ? d->bond.name : NULL, text);
}

__attribute__((format(printf, 5, 6)))
static void say_line(struct parser *p, struct draft *d, int line, const char *allowed,
		     const char *fmt, ...)
{
	char where[CONFIG_PATH_SIZE + 16], what[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	snprintf(where, sizeof(where), "%.255s:%d", p->path, line);
	say(p, d, where, what, allowed);
}

static const char *allowed_of(struct parser *p, int index)
{
	option_allowed(&config_options[index], p->allowed, sizeof(p->allowed));
	return p->allowed;
}

/* One member of the list; false after a report. */
static bool add_member(struct parser *p, struct draft *d, const char *text)
{
	struct bond_config *bond = &d->bond;
	const char *allowed = allowed_of(p, OPTION_MEMBERS);
	struct member_spec spec;
	char shown[SHOWN + 4];

	show(shown, text);
	if (!member_spec_parse(&spec, text)) {
		say_line(p, d, p->line, allowed, "members: \"%s\" is no device", shown);
		return false;
	}
	for (int i = 0; i < bond->num_members; i++)
		if (member_spec_equal(&bond->members[i], &spec)) {
			say_line(p, d, p->line, allowed, "members: \"%s\" is there twice", shown);
			return false;
		}
	if (bond->num_members == BOND_MAX_MEMBERS) {
		say_line(p, d, p->line, allowed, "members: \"%s\" is one too many", shown);
		return false;
	}
	bond->members[bond->num_members++] = spec;
	return true;
}

/* A list of members, or the part of it on this line; a comma at its end may stay. */
static void parse_members(struct parser *p, struct draft *d, const char *text)
{
	char item[256];

	while (*(text += strspn(text, " \t"))) {
		size_t n = strcspn(text, ","), used = n;

		while (used && isspace((unsigned char)text[used - 1]))
			used--;
		snprintf(item, sizeof(item), "%.*s", (int)used, text);
		if (!add_member(p, d, item))
			return;
		text += n + (text[n] == ',');
	}
}

static void set_option(struct parser *p, struct draft *d, int index, const char *text)
{
	const struct option *o = &config_options[index];
	char shown[SHOWN + 4];

	p->last_option = index;
	if (d->line[index]) {
		say_line(p, d, p->line, "each key once in a section",
			 "%s was given in line %d already", o->key, d->line[index]);
		return;
	}
	d->line[index] = p->line;
	if (o->type == TYPE_MEMBERS) {
		parse_members(p, d, text);
	} else if (!option_parse(o, text, &d->bond)) {
		show(shown, text);
		say_line(p, d, p->line, allowed_of(p, index), "%s: \"%s\" is not a value for it",
			 o->key, shown);
	}
}

static void say_unknown_key(struct parser *p, struct draft *d, const char *key)
{
	char list[400], shown[SHOWN + 4];
	size_t used = 0;

	for (int i = 0; i < NUM_OPTIONS && used < sizeof(list); i++)
		if (!(config_options[i].flags & FLAG_NO_FILE))
			used += snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
					 config_options[i].key);
	show(shown, key);
	say_line(p, d, p->line, list, "unknown key \"%s\"", shown);
}

/* libinih does not take a comment off a line that goes on with the one above. */
static void cut_comment(char *text)
{
	for (char *s = text; *s; s++)
		if (*s == ';' && (s == text || isspace((unsigned char)s[-1]))) {
			*s = 0;
			return;
		}
}

/* libinih's handler: a key and its value, or with p->indented more of the last value. */
static int on_value(void *user, const char *section, const char *key, const char *value)
{
	struct parser *p = user;
	struct draft *d = current(p);
	char more[256];
	int index;

	(void)section;	/* cut at 49 bytes there; the reader has the whole name */
	p->pending = false;
	if (!d) {
		if (!p->skip_section)
			say_line(p, NULL, p->line, "keys below a [BOND] line",
				 "a key before the first section");
		return 1;
	}
	if (!p->indented) {
		index = option_find(key);
		if (index < 0)
			say_unknown_key(p, d, key);
		else
			set_option(p, d, index, value);
		return 1;
	}
	if (p->last_option != OPTION_MEMBERS) {
		say_line(p, d, p->line, "only members may go on in indented lines without \"=\"",
			 "the line goes on with a key that has one value");
		return 1;
	}
	snprintf(more, sizeof(more), "%s", value);
	cut_comment(more);
	if (!d->bad)
		parse_members(p, d, more);
	return 1;
}

static void open_draft(struct parser *p, const char *name)
{
	struct draft *more = reallocarray(p->drafts, p->num_drafts + 1, sizeof(*more));

	if (!more) {
		p->error = ENOMEM;
		return;
	}
	p->drafts = more;
	more += p->num_drafts++;
	memset(more, 0, sizeof(*more));
	strcpy(more->bond.name, name);
	more->bond.line = p->line;
	option_set_defaults(&more->bond);
	p->in_section = true;
}

/* Until the next good heading keys mean nothing: whoever calls this has said why. */
static void close_section(struct parser *p)
{
	p->in_section = false;
	p->skip_section = true;
	p->last_option = -1;
}

/* A line that begins with '['. libinih sees it too, but only forgets its last key there. */
static void on_heading(struct parser *p, const char *text)
{
	char name[CONFIG_NAME_SIZE + 1], shown[SHOWN + 4];
	const char *end = strchr(text, ']');

	close_section(p);
	show(shown, text);
	if (end && (end[1 + strspn(end + 1, " \t")] == 0 || end[1 + strspn(end + 1, " \t")] == ';'))
		snprintf(name, sizeof(name), "%.*s", (int)(end - text - 1), text + 1);
	else
		name[0] = 0;
	if (!config_name_ok(name, CONFIG_NAME_SIZE - 1)) {
		say_line(p, NULL, p->line,
			 "[BOND], a name of at most 63 letters, digits, \"_\", \".\" and \"-\"",
			 "\"%s\" does not begin a bond", shown);
		return;
	}
	for (int i = 0; i < p->num_drafts; i++)
		if (!strcmp(p->drafts[i].bond.name, name)) {
			say_line(p, &p->drafts[i], p->line, "one section for each bond",
				 "[%s] was begun in line %d already", name,
				 p->drafts[i].bond.line);
			return;
		}
	open_draft(p, name);
}

/* What libinih did not hand to on_value() had no '='. */
static void check_pending(struct parser *p)
{
	if (p->pending)
		say_line(p, current(p), p->line, "[BOND], KEY = VALUE, or a comment behind \";\"",
			 "the line says nothing");
	p->pending = false;
}

/* Up to size bytes of the next line, the rest is passed over. Returns its full length, -1: end. */
static long read_line(FILE *file, char *buf, long size)
{
	long n = 0;
	int c;

	while ((c = getc(file)) != EOF && c != '\n') {
		if (n < size)
			buf[n] = c;
		n++;
	}
	return c == EOF && !n ? -1 : n;
}

/* The bytes of a line as libinih should see them; begins and ends are trimmed. */
static char *prepare_line(struct parser *p, char *buf, long len, long room)
{
	char *text = buf, *end = buf + (len < room ? len : room);

	if (p->line == 1 && len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		text += 3;
	p->indented = text < end && (*text == ' ' || *text == '\t');
	while (text < end && isspace((unsigned char)*text))
		text++;
	while (end > text && isspace((unsigned char)end[-1]))
		end--;
	*end = 0;
	if (!*text || *text == ';' || *text == '#')
		return end;	/* nothing to say, whatever its length */
	if (len > room) {
		char allowed[96];

		snprintf(allowed, sizeof(allowed),
			 "%ld bytes; members may go on in indented lines below", room);
		say_line(p, *text == '[' ? NULL : current(p), p->line, allowed,
			 "the line has %ld bytes", len);
		if (*text == '[')
			close_section(p);
		return end;
	}
	if (strlen(text) != (size_t)(end - text)) {
		say_line(p, current(p), p->line, "text", "the line has a zero byte");
		return end;
	}
	return text;
}

/* libinih's reader: one line into buf, which has num bytes. */
static char *on_line(char *buf, int num, void *stream)
{
	struct parser *p = stream;
	long room = num - 3, len;	/* what follows the text there: a blank, '\n' and the NUL */
	char *text;

	check_pending(p);
	len = p->error ? -1 : read_line(p->file, buf, room);
	if (len < 0) {
		if (ferror(p->file))
			p->error = errno;
		return NULL;
	}
	p->line++;
	text = prepare_line(p, buf, len, room);
	p->indented = p->indented && p->last_option >= 0 && *text && *text != '[' &&
		      !strchr(text, '=');
	p->pending = *text && *text != '[';
	if (*text == '[')
		on_heading(p, text);
	memmove(buf + p->indented, text, strlen(text) + 1);
	if (p->indented)
		buf[0] = ' ';
	return buf;
}

/* About an option of a complete section, where it was given: a line or a variable. */
__attribute__((format(printf, 5, 6)))
static void say_option(struct parser *p, struct draft *d, int index, const char *allowed,
		       const char *fmt, ...)
{
	char variable[OPTION_VARIABLE_SIZE], what[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	if (d->from_env[index]) {
		option_variable(&config_options[index], variable, sizeof(variable));
		p->bad_variable = true;
		say(p, NULL, variable, what, allowed);
		return;
	}
	say_line(p, d, d->line[index] ? d->line[index] : d->bond.line, allowed, "%s", what);
}

static bool has_own_name(const struct bond_config *bond)
{
	for (int i = 1; i < bond->num_members; i++)
		if (bond->members[i].kind == CONFIG_MEMBER_NAME &&
		    !strcmp(bond->members[i].text, bond->name))
			return true;
	return false;
}

/* What can only be said when the section is complete; one report is enough. */
static void check_draft(struct parser *p, struct draft *d)
{
	const struct bond_config *bond = &d->bond;
	char allowed[OPTION_ALLOWED_SIZE];

	if (d->bad)
		return;
	if (!bond->num_members) {
		say_option(p, d, OPTION_MEMBERS, allowed_of(p, OPTION_MEMBERS),
			   "[%s] has no members", bond->name);
	} else if (has_own_name(bond)) {
		say_option(p, d, OPTION_MEMBERS, "the bond's own name for the first member alone",
			   "members: \"%s\" is the bond itself", bond->name);
	} else if (bond->num_weights && bond->num_weights != bond->num_members) {
		say_option(p, d, OPTION_WEIGHTS, allowed_of(p, OPTION_WEIGHTS),
			   "weights: %d numbers for %d members of [%s]", bond->num_weights,
			   bond->num_members, bond->name);
	} else if (bond->qps_per_member * bond->num_members > BOND_MAX_PATHS) {
		snprintf(allowed, sizeof(allowed), "members times qps_per_member at most %d",
			 BOND_MAX_PATHS);
		say_option(p, d, OPTION_QPS_PER_MEMBER, allowed,
			   "qps_per_member: %d on each of %d members of [%s]",
			   bond->qps_per_member, bond->num_members, bond->name);
	}
}

/* A process has one control channel for each port, and the channel one secret. */
static bool share_port_not_key(const struct bond_config *a, const struct bond_config *b)
{
	return a->control_port == b->control_port && strcmp(a->auth_key_file, b->auth_key_file);
}

/* A primary takes the bond's name, so it can have one name only. */
static void check_pair(struct parser *p, struct draft *d, const struct draft *other)
{
	char allowed[SHOWN + 160], shown[SHOWN + 4];

	if (member_spec_equal(d->bond.members, other->bond.members)) {
		say_option(p, d, OPTION_MEMBERS, "a first member that no other bond has first",
			   "members: the first one is the first of [%s] too", other->bond.name);
	} else if (share_port_not_key(&d->bond, &other->bond)) {
		show(shown, other->bond.auth_key_file);
		snprintf(allowed, sizeof(allowed), "what [%s] has (%s), or another control_port",
			 other->bond.name, *shown ? shown : "none");
		say_option(p, d, OPTION_AUTH_KEY_FILE, allowed,
			   "auth_key_file: not that of [%s], which has the same control_port %d",
			   other->bond.name, other->bond.control_port);
	}
}

static void check_pairs(struct parser *p)
{
	for (int i = 0; i < p->num_drafts; i++)
		for (int k = 0; k < i && !p->bad_variable; k++)
			if (!p->drafts[i].bad && !p->drafts[k].bad)
				check_pair(p, &p->drafts[i], &p->drafts[k]);
}

/* A wrong variable is said once and ends all bonds: nobody should run on a setting half taken. */
static void apply_environment(struct parser *p)
{
	char variable[OPTION_VARIABLE_SIZE], shown[SHOWN + 4], what[SHOWN + 48];

	for (int i = 0; i < NUM_OPTIONS; i++) {
		const struct option *o = &config_options[i];
		const char *text;
		bool good = true;

		option_variable(o, variable, sizeof(variable));
		text = o->flags & FLAG_NO_ENV ? NULL : secure_getenv(variable);
		if (!text)
			continue;
		for (int k = 0; k < p->num_drafts; k++) {
			p->drafts[k].from_env[i] = true;
			good &= option_parse(o, text, &p->drafts[k].bond);
		}
		if (good)
			continue;
		p->bad_variable = true;
		show(shown, text);
		snprintf(what, sizeof(what), "\"%s\" is not a value for it", shown);
		say(p, NULL, variable, what, allowed_of(p, i));
	}
}

static int keep_good(struct parser *p, struct config *out)
{
	out->bonds = calloc(p->num_drafts ? p->num_drafts : 1, sizeof(*out->bonds));
	if (!out->bonds)
		return ENOMEM;
	for (int i = 0; i < p->num_drafts; i++) {
		struct bond_config *bond = &p->drafts[i].bond;

		if (p->drafts[i].bad || p->bad_variable)
			continue;
		if (bond->order_below == CONFIG_AUTO)
			bond->order_below = bond->stripe_above;
		out->bonds[out->num_bonds++] = *bond;
	}
	return 0;
}

static int say_unreadable(struct parser *p, int error)
{
	char why[128];

	/* The GNU strerror_r may return a string of its own. */
	say_line(p, NULL, 0, "a readable file", "cannot be read: %s",
		 strerror_r(error, why, sizeof(why)));
	return error;
}

static int read_sections(struct parser *p)
{
	/* Its result is the number of a line that check_pending() has spoken of, or no memory. */
	if (ini_parse_stream(on_line, p, on_value, p) == -2)
		return ENOMEM;
	return p->error && p->error != ENOMEM ? say_unreadable(p, p->error) : p->error;
}

/* Opens without waiting: a pipe that nobody writes must not stop the application. */
static int open_file(struct parser *p)
{
	struct stat st;
	int fd, error;

	fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : say_unreadable(p, errno);
	if (fstat(fd, &st)) {
		error = say_unreadable(p, errno);
		goto err_close;
	}
	if (S_ISCHR(st.st_mode)) {
		error = 0;
		goto err_close;
	}
	if (!S_ISREG(st.st_mode)) {
		error = say_unreadable(p, S_ISDIR(st.st_mode) ? EISDIR : EINVAL);
		goto err_close;
	}
	p->file = fdopen(fd, "r");
	if (p->file)
		return 0;
	error = errno;
err_close:
	close(fd);
	return error;
}

int config_load(struct config *out, config_report_fn report, void *arg)
{
	struct parser p = { .report = report, .report_arg = arg, .last_option = -1 };
	const char *path = secure_getenv("RDMA_BOND_CONF");
	int error;

	memset(out, 0, sizeof(*out));
	p.path = path && *path ? path : BOND_CONF_FILE;
	error = open_file(&p);
	if (error || !p.file)
		return error;
	error = read_sections(&p);
	fclose(p.file);
	if (!error) {
		apply_environment(&p);
		for (int i = 0; i < p.num_drafts && !p.bad_variable; i++)
			check_draft(&p, &p.drafts[i]);
		check_pairs(&p);
		error = keep_good(&p, out);
	}
	free(p.drafts);
	return error;
}
