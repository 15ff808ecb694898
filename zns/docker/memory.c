/* SPDX-License-Identifier: GPL-2.0-only */
/* zns.memory: parses the setting, and computes the budget of the container. */
#include <string.h>
#include <sys/sysinfo.h>
#include "docker.h"
#include "zns/config.h"

#define DRAM_MIN MIB(1)
#define IDLE_MIN_S 1
#define IDLE_MAX_S (365 * 86400ULL)
/*
 * percentage of the memory limit that a container may use if it has no budget: restored memory is
 * charged page by page, in addition to what the container allocates
 */
#define NO_BUDGET_PCT 90

static int bad(const char *value, const char *where, struct zns_err *err)
{
	return zns_fail(
		err, -EINVAL,
		"%s: \"%.60s\" is not known: a size of 1M at least, a share like 30%%, auto, "
		"hibernate:10m, one of these and that with a comma between them, or no",
		where, value);
}

/* Parses one word of the setting. */
static bool word(const char *w, struct docker_memory *m)
{
	size_t len = strlen(w);
	char digits[8];

	if (!strncmp(w, "hibernate:", 10))
		return !m->idle_s && !zns_parse_duration(w + 10, &m->idle_s) &&
		       m->idle_s >= IDLE_MIN_S && m->idle_s <= IDLE_MAX_S;
	if (m->dram || m->percent || m->machine)
		return false;
	if (!strcmp(w, "auto"))
		return m->machine = true;
	if (len && w[len - 1] == '%') {
		snprintf(digits, sizeof(digits), "%.*s", (int)zns_min(len - 1, sizeof(digits) - 1),
			 w);
		return len <= 4 && !zns_parse_number(digits, 1, 100, &m->percent);
	}
	return !zns_parse_size(w, &m->dram) && m->dram >= DRAM_MIN;
}

int docker_memory_parse(const char *value, const char *where, struct docker_memory *m,
			struct zns_err *err)
{
	char text[DOCKER_SETTING_MAX];
	const char *rest = value;

	memset(m, 0, sizeof(*m));
	if (!strcmp(value, "no") || !strcmp(value, DOCKER_MEMORY_NEVER))
		return 0;
	for (size_t n = strcspn(rest, ",");; n = strcspn(rest, ",")) {
		snprintf(text, sizeof(text), "%.*s", (int)zns_min(n, sizeof(text) - 1), rest);
		if (!word(text, m))
			return bad(value, where, err);
		if (!rest[n])
			break;
		rest += n + 1;
	}
	m->wanted = true;
	return 0;
}

static uint64_t limit_of(const struct docker_container *c)
{
	struct json_object *r = zns_json_get(zns_json_get(c->spec, "linux"), "resources");
	int64_t v = json_object_get_int64(zns_json_get(zns_json_get(r, "memory"), "limit"));

	return v > 0 ? (uint64_t)v : 0;
}

/* Parses "memory-dram = 8G", or "50%" of the machine's memory. */
int docker_memory_total(uint64_t *total, struct zns_err *err)
{
	char text[32];
	uint64_t percent;
	struct sysinfo si;
	size_t len;
	int ret = zns_config_get("memory-dram", text, sizeof(text), err);

	if (ret == -ENOENT)
		return zns_fail(err, ret,
				"auto: zns.conf has no memory-dram, which says how much DRAM such "
				"contexts may have together");
	if (ret)
		return ret;
	len = strlen(text);
	if (len && len <= 4 && text[len - 1] == '%') {
		text[len - 1] = '\0';
		if (zns_parse_number(text, 1, 100, &percent) || sysinfo(&si))
			return zns_fail(err, -EINVAL, "zns.conf: memory-dram is 1%% to 100%%");
		*total = (uint64_t)si.totalram * si.mem_unit / 100 * percent;
	} else if (zns_parse_size(text, total) || *total < DOCKER_MEMORY_MIN_BYTES) {
		return zns_fail(err, -EINVAL,
				"zns.conf: memory-dram = %.30s: a size of 16M at least, or a share "
				"like 50%%",
				text);
	}
	return 0;
}

/* Checks the minimum. All other contexts have to make room for it, so it has a limit. */
static int least(const struct docker_container *c, struct docker_memory *m, uint64_t limit,
		 struct zns_err *err)
{
	uint64_t max = limit ? zns_min(limit, m->total) : m->total;
	struct zns_tenant t;
	int ret = zns_tenant_find(c->name, -1, &t, err);

	if (ret)
		return ret;
	if (t.max_memory_min && m->min > t.max_memory_min)
		return zns_fail(err, -EPERM,
				"zns.memory-min: %llu MiB, and the ceiling of `%.100s` is %llu MiB "
				"(tenants.conf:%u)",
				(unsigned long long)(m->min >> 20), t.who,
				(unsigned long long)(t.max_memory_min >> 20), t.line);
	if (m->min > max)
		return zns_fail(err, -EINVAL, "zns.memory-min: %llu MiB is above %s of %llu MiB",
				(unsigned long long)(m->min >> 20),
				max == limit ? "the container's memory limit" : "memory-dram",
				(unsigned long long)(max >> 20));
	if (!m->min) {
		m->min = zns_min((uint64_t)DOCKER_MEMORY_MIN_BYTES, max);
		if (t.max_memory_min)
			m->min = zns_min(m->min, t.max_memory_min);
	}
	m->min = zns_max(m->min, (uint64_t)DRAM_MIN);
	return 0;
}

int docker_memory_size(const struct docker_container *c, struct docker_memory *m,
		       struct zns_err *err)
{
	uint64_t limit = limit_of(c), all;
	struct sysinfo si;

	if (sysinfo(&si))
		return zns_fail_sys(err, -errno, "cannot find the size of the machine's memory");
	all = (uint64_t)si.totalram * si.mem_unit;
	if (m->machine) {
		int ret = docker_memory_total(&m->total, err);

		if (!ret)
			ret = least(c, m, limit, err);
		/* until its pager knows which other contexts share the total */
		m->dram = m->min;
		return ret;
	}
	if (m->dram && limit && m->dram > limit)
		return zns_fail(err, -EINVAL,
				"zns.memory: the budget is above the container's memory limit of "
				"%llu bytes",
				(unsigned long long)limit);
	if (m->percent)
		m->dram = (limit ? limit : all) / 100 * m->percent;
	else if (!m->dram)
		m->dram = limit ? limit / 100 * NO_BUDGET_PCT : all;
	m->dram = zns_max(m->dram, (uint64_t)DRAM_MIN);
	return 0;
}

void docker_memory_name(const struct docker_container *c, char *out, size_t len)
{
	snprintf(out, len, "%s", c->name);
	/* no engine allows + in a name, so two containers never get the same name */
	for (char *p = out; *p; p++)
		if (*p == '/')
			*p = '+';
}
