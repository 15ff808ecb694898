/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tenants.conf: limits of tenants, which hold whatever their containers ask for, and the weight of
 * containers that ask for none. */
#include <ctype.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <string.h>

#include "config_priv.h"

#define TENANTS_MAX MIB(1)
#define LIMIT_MAX 1000000000u
#define LIMITS                                                                                 \
	"max-qos=RATE, max-groups=N, max-weight=N, weight=N, total-qos=RATE, total-groups=N, " \
	"max-memory=SIZE, total-memory=SIZE, max-memory-min=SIZE or memory-rate=RATE"

struct rule {
	struct zns_tenant t;
	bool by_uid;
	uint32_t uid_first, uid_last;
	const char *pattern;
};

static char *next_word(char **p)
{
	char *s = *p, *end;

	while (isspace((unsigned char)*s))
		s++;
	if (!*s)
		return NULL;
	for (end = s; *end && !isspace((unsigned char)*end); end++)
		;
	*p = *end ? end + 1 : end;
	*end = '\0';
	return s;
}

/* Parses all of @s as a decimal number. */
static bool number(const char *s, uint32_t *out)
{
	uint64_t v;

	if (zns_parse_number(s, 0, UINT32_MAX, &v))
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool parse_uids(char *s, struct rule *r)
{
	char *dash = strchr(s, '-');

	if (dash)
		*dash = '\0';
	return number(s, &r->uid_first) && number(dash ? dash + 1 : s, &r->uid_last) &&
	       r->uid_first <= r->uid_last;
}

static const char *parse_size(const char *text, uint64_t *to)
{
	if (*to)
		return "a limit is given twice";
	if (zns_parse_size(text, to))
		return "a size reads like 512M, 20G or 1T";
	return *to ? NULL : "a limit must be 1 or more";
}

/* Parses one limit of a rule. Returns NULL, or what is wrong with the word. */
static const char *parse_limit(char *word, struct rule *r)
{
	static const struct {
		const char *key;
		size_t at;
		enum { RATE, NUMBER, WEIGHT, SIZE } is;
	} keys[] = {
		{ "max-qos", offsetof(struct zns_tenant, max_qos_mibps), RATE },
		{ "max-groups", offsetof(struct zns_tenant, max_groups), NUMBER },
		{ "max-weight", offsetof(struct zns_tenant, max_weight), WEIGHT },
		{ "weight", offsetof(struct zns_tenant, weight), WEIGHT },
		{ "total-qos", offsetof(struct zns_tenant, total_qos_mibps), RATE },
		{ "total-groups", offsetof(struct zns_tenant, total_groups), NUMBER },
		{ "memory-rate", offsetof(struct zns_tenant, memory_mibps), RATE },
		{ "max-memory", offsetof(struct zns_tenant, max_memory), SIZE },
		{ "total-memory", offsetof(struct zns_tenant, total_memory), SIZE },
		{ "max-memory-min", offsetof(struct zns_tenant, max_memory_min), SIZE },
	};
	char *eq = strchr(word, '=');
	uint32_t *to, v = 0;

	if (eq)
		*eq = '\0';
	for (size_t i = 0; eq && i < ZNS_ARRAY_SIZE(keys); i++) {
		if (strcmp(word, keys[i].key))
			continue;
		if (keys[i].is == SIZE)
			return parse_size(eq + 1, (uint64_t *)((char *)&r->t + keys[i].at));
		to = (uint32_t *)((char *)&r->t + keys[i].at);
		if (*to)
			return "a limit is given twice";
		if (keys[i].is == WEIGHT)
			return number(eq + 1, to) && *to >= ZNS_WEIGHT_MIN &&
					       *to <= ZNS_WEIGHT_MAX ?
				       NULL :
				       "a weight is 100 to 10000";
		if (keys[i].is == RATE ? zns_parse_mibps(eq + 1, &v) != 0 : !number(eq + 1, &v))
			return keys[i].is == RATE ? "a rate reads like 500, 500MiB/s or 2GiB/s" :
						    "a number of groups is wanted";
		if (!v || v > LIMIT_MAX)
			return "a limit must be 1 or more";
		*to = v;
		return NULL;
	}
	return "a limit is " LIMITS;
}

/* Parses one line. Returns NULL, or what is wrong with the line. */
static const char *parse_rule(char *line, struct rule *r)
{
	char *kind = next_word(&line), *who = next_word(&line), *word;
	const char *bad = NULL;
	bool any = false;

	if (strcmp(kind, "name") && strcmp(kind, "uid"))
		return "a rule begins with `name PATTERN` or `uid N[-M]`";
	if (!who)
		return "who is meant? `name PATTERN` or `uid N[-M]`";
	snprintf(r->t.who, sizeof(r->t.who), "%s %s", kind, who);
	r->by_uid = !strcmp(kind, "uid");
	r->pattern = who;
	if (r->by_uid && !parse_uids(who, r))
		return "a user is a number, or two like 1000-1999";
	while (!bad && (word = next_word(&line))) {
		bad = parse_limit(word, r);
		any = true;
	}
	if (!bad && !any)
		bad = "the rule sets no limit: " LIMITS;
	if (!bad && r->t.max_weight && r->t.weight > r->t.max_weight)
		bad = "the rule's weight is above its max-weight";
	return bad;
}

static bool applies(const struct rule *r, const char *container, int64_t uid)
{
	if (r->by_uid)
		return uid >= r->uid_first && uid <= r->uid_last;
	return !fnmatch(r->pattern, container, 0);
}

int zns_tenant_find(const char *container, int64_t uid, struct zns_tenant *out, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	char path[PATH_MAX], *line, *next;
	unsigned nr = 0;
	size_t len;
	int ret;

	memset(out, 0, sizeof(*out));
	ret = snprintf(path, sizeof(path), "%s/tenants.conf", zns_config_dir());
	if (ret < 0 || (size_t)ret >= sizeof(path))
		return zns_fail(
			err, -ENAMETOOLONG,
			"the name of the configuration directory is too long: set ZNS_CONFIG to another one");
	ret = zns_read_file(AT_FDCWD, path, TENANTS_MAX, &text, &len);
	if (ret == -ENOENT)
		return 0;
	if (ret)
		return zns_fail_sys(err, ret, "cannot read %s", path);
	if (memchr(text, 0, len))
		return zns_fail(err, -EINVAL,
				"%s is not a text file: it has a byte 0, so write it anew", path);
	/* Reads to the end of the file, so that a bad line is reported whichever container is
	 * looked up. The first rule that matches counts. */
	for (line = (char *)text; line; line = next) {
		struct rule r = { .pattern = NULL };
		const char *bad;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		nr++;
		while (isspace((unsigned char)*line))
			line++;
		if (!*line || *line == '#')
			continue;
		bad = parse_rule(line, &r);
		if (bad)
			return zns_fail(err, -EINVAL, "%s:%u: %s", path, nr, bad);
		if (!*out->who && applies(&r, container, uid)) {
			*out = r.t;
			out->line = nr;
		}
	}
	return 0;
}
