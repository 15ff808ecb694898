/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits for memory contexts from tenants.conf: how many bytes a context may have on zones, and how
 * fast it may write. Without a rule for it, a context may have a multiple of the limit of its
 * program's cgroup: so whoever limits a program's memory also limits its share of the device. A
 * context at its limit keeps what it has on zones, and the rest of its memory stays in DRAM.
 */
#include <inttypes.h>
#include <string.h>
#include "memory.h"
#include "zns/config.h"

#define LOOK_NS 1000000000ull /* ns between two checks of the file */
#define BURST_NS 1000000000ull
/* without a rule, a context may have this many times the limit of its cgroup on zones */
#define GROUP_TIMES 4u

/* The container's name: the lease "memory:shop+web+app" belongs to shop/web/app. */
static void plain_name(const struct lease *l, char *out, size_t len)
{
	const char *name = strchr(l->container, ':');

	snprintf(out, len, "%s", name ? name + 1 : l->container);
	for (char *p = out; *p; p++)
		if (*p == '+')
			*p = '/';
}

static void look(struct lease *l)
{
	struct memory_lease *m = memory_of(l);
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t now = zns_mono_ns();
	struct zns_tenant t;
	char name[300];

	if (m->ceiling_ns && now - m->ceiling_ns < LOOK_NS)
		return;
	m->ceiling_ns = now;
	plain_name(l, name, sizeof(name));
	m->wrong = zns_tenant_find(name, -1, &t, &err) != 0;
	if (m->wrong) { /* with an error in the file no context may write, as no dump may */
		snprintf(m->refused, sizeof(m->refused), "%.390s", err.msg);
		return;
	}
	snprintf(m->tenant, sizeof(m->tenant), "%s", t.who);
	m->rule_line = t.line;
	m->max_memory = t.max_memory;
	m->total_memory = t.total_memory;
	m->max_mibps = t.memory_mibps;
}

static uint64_t total(const struct znsd *d, const struct lease *of)
{
	const struct lease *l;
	uint64_t sum = 0;

	for (l = d->leases; l; l = l->next)
		if (l == of || (memory_is(l) && memory_of(l)->tenant[0] &&
				!strcmp(memory_of(l)->tenant, memory_of(of)->tenant)))
			sum += memory_of(l)->live;
	return sum;
}

static uint64_t left(uint64_t max, uint64_t have)
{
	return !max ? UINT64_MAX : max > have ? max - have : 0;
}

/*
 * The bytes left under the multiple of the cgroup's limit. Applies if no rule gives the context a
 * limit.
 */
static uint64_t left_of_group(const struct memory_lease *m)
{
	if (m->max_memory || m->group_limit > UINT64_MAX / GROUP_TIMES)
		return UINT64_MAX;
	return left(GROUP_TIMES * m->group_limit, m->live);
}

const char *memory_refused(const struct znsd *d, struct lease *l, uint64_t *room)
{
	struct memory_lease *m = memory_of(l);
	uint64_t all, own;

	look(l);
	*room = 0;
	/* The context was begun before encryption was required. */
	if (wanted_encryption(d) && !l->yields.encrypted) {
		snprintf(m->refused, sizeof(m->refused),
			 "%.200s takes encrypted data only by now, and this context is not: "
			 "`znsctl memory detach` it and attach it again",
			 d->reg.path);
		return m->refused;
	}
	if (m->wrong)
		return m->refused;
	all = total(d, l);
	own = left(m->max_memory, m->live);
	*room = zns_min(zns_min(own, left_of_group(m)), left(m->total_memory, all));
	if (*room)
		return NULL;
	if (!left_of_group(m)) {
		snprintf(m->refused, sizeof(m->refused),
			 "memory on zones is %" PRIu64 " MiB, %u times the %" PRIu64
			 " MiB that its cgroup may use; `max-memory` in %.200s/tenants.conf allows "
			 "more",
			 m->live >> 20, GROUP_TIMES, m->group_limit >> 20, zns_config_dir());
		return m->refused;
	}
	snprintf(m->refused, sizeof(m->refused),
		 "memory on zones is %" PRIu64 " MiB, the ceiling of `%.100s` is %" PRIu64
		 " MiB (%.200s/tenants.conf:%u)",
		 (own ? all : m->live) >> 20, m->tenant,
		 (own ? m->total_memory : m->max_memory) >> 20, zns_config_dir(), m->rule_line);
	return m->refused;
}

bool memory_too_fast(struct lease *l)
{
	struct memory_lease *m = memory_of(l);
	uint64_t now = zns_mono_ns(), rate, past;

	look(l);
	if (!m->max_mibps)
		return false;
	rate = MIB((uint64_t)m->max_mibps);
	past = zns_min(now - m->allowed_ns, BURST_NS);
	/* the count of a new pager begins at 0 */
	if (!m->allowed_ns || m->written + rate < m->allowed)
		m->allowed = m->written;
	m->allowed = zns_min(m->allowed + rate / 1000 * (past / 1000000), m->written + rate / 4);
	m->allowed_ns = now;
	return m->written >= m->allowed;
}
