/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Delays reading memory back into a process whose cgroup is at its limit. Such memory is charged to
 * the cgroup, and at the limit the kernel would kill one of its processes, although the evictor is
 * about to free memory. So the worker waits a moment for the evictor. Page cache is not counted,
 * since the kernel can reclaim it.
 */
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "cgroup.h"
#include "../engine/mem.h"

#define LOOK_NS 3000000ULL
#define LOOK_FREE_NS 1000000000ULL /* ns between two checks while there is no limit */
#define WAIT_MS 400 /* ms; several times the age of the youngest unit that is evicted */
#define STEP_MS 5
#define MARGIN_MIN MIB(2)

static const struct version {
	const char *fs, *controller, *max, *now, *cache[2];
} versions[] = {
	{ "cgroup2", "", "memory.max", "memory.current", { "\nactive_file ", "\ninactive_file " } },
	{ "cgroup",
	  "memory",
	  "memory.limit_in_bytes",
	  "memory.usage_in_bytes",
	  { "\ntotal_active_file ", "\ntotal_inactive_file " } },
};

static bool number(const char *dir, const char *name, uint64_t *out)
{
	cleanup_free uint8_t *text = NULL;
	char path[1100], *end;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (zns_read_file(AT_FDCWD, path, 64, &text, &len))
		return false;
	*out = strtoull((char *)text, &end, 10);
	if (end == (char *)text) /* no number: the text is "max" */
		*out = CEILING_NONE;
	return true;
}

static uint64_t cache_of(const char *dir, const struct version *v)
{
	cleanup_free uint8_t *text = NULL;
	uint64_t sum = 0;
	char path[1100];
	size_t len;

	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	if (zns_read_file(AT_FDCWD, path, 1 << 16, &text, &len))
		return 0;
	for (int i = 0; i < 2; i++) {
		const char *at = strstr((char *)text, v->cache[i]);

		sum += at ? strtoull(at + strlen(v->cache[i]), NULL, 10) : 0;
	}
	return sum;
}

typedef void (*each_limit)(const char *dir, const struct version *v, uint64_t max, uint64_t *out);

/* Calls @each for the process's cgroup and its parents, as far as they have a limit. */
static void limits(pid_t pid, each_limit each, uint64_t *out)
{
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(versions); i++) {
		const struct version *v = &versions[i];
		char root[512], path[512], dir[1025], *slash;

		if (!cgroup_mounted(v->fs, v->controller, root, sizeof(root)) ||
		    !cgroup_of(pid, v->controller, path, sizeof(path)))
			continue;
		snprintf(dir, sizeof(dir), "%s%s", root, path);
		while (strlen(dir) > strlen(root) && (slash = strrchr(dir, '/'))) {
			uint64_t max;

			if (number(dir, v->max, &max) && max < CEILING_NONE)
				each(dir, v, max, out);
			*slash = '\0';
		}
	}
}

static void room_of(const char *dir, const struct version *v, uint64_t max, uint64_t *room)
{
	uint64_t now, margin = zns_max(max / 16, (uint64_t)MARGIN_MIN);

	if (!number(dir, v->now, &now))
		return;
	now -= zns_min(now, cache_of(dir, v));
	*room = zns_min(*room, max > now + margin ? max - now - margin : 0);
}

uint64_t ceiling_room(pid_t pid)
{
	uint64_t room = CEILING_NONE;

	limits(pid, room_of, &room);
	return room;
}

static void least_of(const char *dir, const struct version *v, uint64_t max, uint64_t *least)
{
	*least = zns_min(*least, max);
}

/* Reads the limit of one process only: all processes of a context belong to one container. */
uint64_t zns_mem_group_limit(struct zns_mem *m)
{
	struct proc *list[PROCS_MAX];
	uint64_t least = CEILING_NONE;
	unsigned int nr;
	bool looked = false;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		if (!looked && list[i]->pid > 0)
			limits(list[i]->pid, least_of, &least);
		looked |= list[i]->pid > 0;
		proc_put(list[i]);
	}
	return least < CEILING_NONE ? least : 0;
}

/* Subtracts a unit from the room at the last check. True: no room is left. */
static bool is_full(struct proc *p)
{
	struct zns_mem *m = p->m;
	uint64_t now = zns_mono_ns(), looked = m->below_ns, left = m->below;

	if ((now - looked > LOOK_NS && left < CEILING_NONE) || now - looked > LOOK_FREE_NS) {
		if (p->pid && atomic_compare_exchange_strong(&m->below_ns, &looked, now))
			m->below = ceiling_room(p->pid);
		left = m->below;
	}
	while (left >= UNIT && left < CEILING_NONE)
		if (atomic_compare_exchange_weak(&m->below, &left, left - UNIT))
			return false;
	return left < UNIT;
}

void ceiling_wait(struct proc *p)
{
	if (!is_full(p) || mem_without(RULE_CEILING))
		return;
	mem_warn(p->m, "process %d waits for memory: its cgroup is nearly at its limit", p->pid);
	for (int ms = 0; ms < WAIT_MS && is_full(p) && !p->gone && !p->m->end; ms += STEP_MS)
		nanosleep(&(struct timespec){ .tv_nsec = STEP_MS * 1000000 }, NULL);
}
