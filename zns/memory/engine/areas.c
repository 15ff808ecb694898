/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lists the areas of a process that may be evicted, and counts the others by reason. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

#include "mem.h"
#include "zns/grow.h"

/*
 * A thread's stack is an area right above one without any access (its guard area, of at most
 * GUARD_MAX bytes), or an area that begins with a guard page. It is not evicted: the kernel writes
 * to a stack when the thread ends, and does not wait for a missing page but fails.
 */
#define GUARD_MAX KIB(64)
#define STACK_MAX MIB(256)

/* Finds a line "Name:  123 kB" of /proc/PID/status. Returns bytes. */
static uint64_t status_value(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? KIB(strtoull(at + strlen(name), NULL, 10)) : 0;
}

static uint64_t status_of(const struct proc *p, const char *name)
{
	char path[48];
	cleanup_free uint8_t *text = NULL;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/status", p->pid);
	if (zns_read_file(AT_FDCWD, path, 1 << 16, &text, &len))
		return 0;
	return status_value((char *)text, name);
}

/* PROCMAP_QUERY, Linux 6.11; the names are our own */
struct area_arg {
	__u64 size, flags, addr; /* input */
	__u64 start, end, area_flags, page_size, offset, inode;
	__u32 dev_major, dev_minor;
	__u32 name_size, build_id_size; /* input; 0: the name and the build ID are not requested */
	__u64 name, build_id;
};
#define AREA_IOCTL _IOWR('f', 17, struct area_arg)
#define AREA_SHARED 8U

int place_now(const struct proc *p, uint64_t addr, struct place *a)
{
	struct area_arg q = { .size = sizeof(q), .addr = addr };

	if (mem_refused(REFUSED_QUERY))
		return 0;
	if (ioctl(p->maps, AREA_IOCTL, &q))
		return errno == ENOTTY ? 0 : -errno;
	if (q.area_flags & AREA_SHARED || q.inode)
		return -ESTALE;
	*a = (struct place){ q.start, q.end };
	return 0;
}

int place_read(const struct proc *p, uint64_t addr, struct areas *all, struct place *a)
{
	int ret;

	*a = (struct place){ 0 };
	ret = place_now(p, addr, a);
	if (ret || a->end)
		return ret;
	ret = all->nr ? 0 : areas_read(p->maps, all, NULL);
	for (size_t i = 0; i < all->nr && !ret; i++)
		if (all->a[i].start <= addr && addr < all->a[i].end) {
			*a = (struct place){ all->a[i].start, all->a[i].end };
			return all->a[i].shared || all->a[i].file ? -ESTALE : 0;
		}
	return ret ? ret : -ENOENT;
}

struct locks {
	struct place *a;
	size_t nr, max;
};

static FILE *open_smaps(const struct proc *p)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/smaps", p->pid);
	return fopen(path, "re");
}

static bool has_flag(const char *line, const char *flag)
{
	return !strncmp(line, "VmFlags:", 8) && strstr(line, flag);
}

/* Lists locked areas. smaps is slow, so it is read only if the process has locked memory at all. */
static int locked_areas(const struct proc *p, struct locks *l)
{
	char line[4400];
	cleanup_file FILE *f = NULL;
	struct place at = { 0 };

	if (!status_of(p, "\nVmLck:"))
		return 0;
	f = open_smaps(p);
	while (f && fgets(line, sizeof(line), f)) {
		char *end;
		uint64_t start = strtoull(line, &end, 16);

		if (*end == '-' && end != line)
			at = (struct place){ start, strtoull(end + 1, NULL, 16) };
		if (!has_flag(line, " lo"))
			continue;
		if (zns_grow(l->a, l->nr, l->max))
			return -ENOMEM;
		l->a[l->nr++] = at;
	}
	return 0;
}

bool mem_places_watched(const struct proc *p)
{
	cleanup_file FILE *f = open_smaps(p);
	char line[4400];

	while (f && fgets(line, sizeof(line), f))
		if (has_flag(line, " um") || has_flag(line, " uw"))
			return true;
	return false;
}

static bool is_locked(const struct locks *l, const struct area *a)
{
	for (size_t i = 0; i < l->nr; i++)
		if (l->a[i].start < a->end && a->start < l->a[i].end)
			return true;
	return false;
}

static bool is_stack(const struct proc *p, const struct area *a, const struct area *below)
{
	bool guarded = below && below->end == a->start && below->none &&
		       below->end - below->start <= GUARD_MAX;

	return a->stack ||
	       (a->end - a->start <= STACK_MAX && (guarded || present_is_guard(p, a->start)));
}

/* Returns the counter of the reason why this area may not be evicted; NULL: it may be evicted. */
static uint64_t *why_not(const struct proc *p, struct places *l, const struct locks *locks,
			 const struct area *a, const struct area *below)
{
	if (a->shared)
		return &l->shared;
	if (a->file)
		return &l->file;
	if (!a->may || !a->writable || a->end - a->start < UNIT || is_stack(p, a, below))
		return &l->special;
	return is_locked(locks, a) ? &l->locked : NULL;
}

int mem_places_read(struct proc *p, struct places *l)
{
	struct areas all = { 0 };
	struct locks locks = { 0 };
	int ret = areas_read(p->maps, &all, NULL);

	l->nr = 0;
	l->locked = l->shared = l->file = l->special = 0;
	l->async = all.async;
	if (!ret)
		ret = locked_areas(p, &locks);
	for (size_t i = 0; i < all.nr && !ret; i++) {
		const struct area *a = &all.a[i];
		uint64_t *sum = why_not(p, l, &locks, a, i ? &all.a[i - 1] : NULL);

		if (sum && !a->none)
			*sum += a->end - a->start;
		if (sum)
			continue;
		ret = zns_grow(l->a, l->nr, l->max);
		if (!ret)
			l->a[l->nr++] = (struct place){ a->start, a->end };
	}
	if (!ret && !all.nr)
		ret = -ESRCH;
	free(locks.a);
	areas_free(&all);
	return ret;
}

void mem_places_free(struct places *l)
{
	free(l->a);
	*l = (struct places){ 0 };
}

const char *mem_places_pinned(struct proc *p, const struct places *l)
{
	if (l->async)
		return l->async;
	return status_of(p, "\nVmPin:") ? "pinned memory" : pins_of(p);
}
