/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads past the page cache: with O_DIRECT, or as a file system does it (mounts.c). The kernel
 * finds the pages that such a read is for when it begins; a device writes to them later, past page
 * tables and protection. One that began before a unit was protected may end after the unit was
 * copied, and what it brought would be dropped. No other process can see that it is on its way. But
 * while all threads of the process stand still none is on its way, and pages are dropped only then.
 * So of who has such a descriptor, a page that is not what was copied stays.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "direct.h"

#define DIRECT_NS 60000000000ULL /* after one was seen */
#define LOOKED_AT 512U /* descriptors; whoever has more may have one */

/* False: there were too many. */
static bool remember(struct mount_ids *ids, long id)
{
	for (unsigned int i = 0; i < ids->nr; i++)
		if (ids->id[i] == id)
			return true;
	if (ids->nr == MOUNTS_SEEN)
		return false;
	ids->id[ids->nr++] = id;
	return true;
}

/* "flags:\t0100002", in octal, and "mnt_id:\t30". What cannot be read may be one. */
static bool is_direct(int dir, const char *name, struct mount_ids *ids)
{
	char text[512];
	cleanup_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *at;

	if (n < 0)
		return errno != ENOENT; /* closed meanwhile */
	text[n] = '\0';
	at = strstr(text, "flags:");
	if (!at || strtoul(at + strlen("flags:"), NULL, 8) & O_DIRECT)
		return true;
	at = strstr(text, "mnt_id:");
	return !at || !remember(ids, strtol(at + strlen("mnt_id:"), NULL, 10));
}

static bool has_direct(const struct proc *p)
{
	struct mount_ids ids = { .nr = 0 };
	char path[40];
	unsigned int nr = 0;
	bool direct = false;
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", p->pid);
	dir = opendir(path);
	if (!dir)
		return true;
	while (!direct && (d = readdir(dir)))
		if (*d->d_name != '.')
			direct = ++nr > LOOKED_AT || is_direct(dirfd(dir), d->d_name, &ids);
	closedir(dir);
	return direct || (!mem_without(RULE_MOUNTS) && mounts_past_cache(p->pid, &ids));
}

bool direct_may_read(struct proc *p)
{
	uint64_t now = zns_mono_ns();

	if (mem_without(RULE_DIRECT))
		return false;
	if (!p->direct_ns || now - p->direct_ns > DIRECT_NS)
		p->direct_ns = has_direct(p) ? now : 0;
	return p->direct_ns;
}

void direct_note(struct victim *v, const uint8_t *copy)
{
	zns_hash_pieces(copy, UNIT, PAGE, v->page);
}

bool direct_is_same(const struct proc *p, const struct victim *v)
{
	uint8_t page[PAGE];

	for (unsigned int i = 0; i < UNIT_PAGES; i++)
		if (v->mask & 1U << i &&
		    (pread(p->mem, page, PAGE, (off_t)(v->base + i * PAGE)) != (ssize_t)PAGE ||
		     zns_hash(page, PAGE) != v->page[i]))
			return false;
	return true;
}
