/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads /proc/PID/maps. The process chooses the names of its files, so only the kind of an area is
 * derived from a name.
 */
#include <stdlib.h>
#include <string.h>

#include "maps.h"
#include "zns/grow.h"
#include "zns/track_control.h"
#include "zns/util.h"

/* bytes; a process may have vm.max_map_count areas with a path of 4 KiB each */
#define MAPS_MAX (256U << 20)

/* Reads the whole file, from its beginning again. */
static int read_again(int fd, char **out, size_t *out_len)
{
	cleanup_free char *buf = NULL;
	size_t have = 0, room = 0;
	ssize_t n;

	do {
		if (room - have < 8192 && zns_grow_to(buf, have + 65536, room))
			return -ENOMEM;
		n = pread(fd, buf + have, room - have - 1, (off_t)have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		have += (size_t)n;
	} while (n && have < MAPS_MAX);
	buf[have] = '\0';
	*out = buf;
	buf = NULL;
	*out_len = have;
	return n ? -EFBIG : 0;
}

static bool begins(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

/* Is this private area something else than plain memory of the process? */
static bool special(const char *name)
{
	if (name[0] == '[') /* [vdso], [vvar], [vsyscall], [uprobes] and future ones */
		return !begins(name, "[heap]") && !begins(name, "[stack") &&
		       !begins(name, "[anon:");
	return begins(name, "/dev/") && !begins(name, "/dev/zero") && !begins(name, "/dev/shm/");
}

static const char *asynchronous(const char *name)
{
	if (!strcmp(name, "/[aio] (deleted)") || !strcmp(name, "/[aio]"))
		return "asynchronous I/O (io_setup)";
	if (!strcmp(name, "anon_inode:[io_uring]"))
		return "io_uring";
	return NULL;
}

/* Parses "start-end perms offset dev inode   name". */
static bool parse(char *line, struct area *a, const char **async)
{
	char perms[8], *p;
	unsigned long long inode;
	const char *name, *what;

	a->start = strtoull(line, &p, 16);
	if (*p != '-')
		return false;
	a->end = strtoull(p + 1, &p, 16);
	if (*p != ' ' || strlen(p) < 6)
		return false;
	memcpy(perms, p + 1, 4);
	p = strchr(p + 6, ' '); /* skip the offset */
	if (!p || sscanf(p, " %x:%x", &a->major, &a->minor) != 2)
		return false;
	p = strchr(p + 1, ' '); /* skip the device */
	if (!p)
		return false;
	inode = strtoull(p, &p, 10);
	name = p + strspn(p, " ");
	a->exec = perms[2] == 'x';
	a->writable = perms[1] == 'w';
	a->shared = perms[3] == 's';
	a->none = perms[0] == '-' && perms[1] == '-' && perms[2] == '-';
	a->stack = begins(name, "[stack");
	a->registered = false;
	a->vdso = !strcmp(name, "[vdso]");
	a->file = inode != 0;
	a->may = perms[3] == 'p' && !special(name);
	if (perms[3] == 's' && track_breaks(TRACK_SHARED)) {
		a->may = !strncmp(name, "/dev/zero", 9);
		a->file = false;
	}
	what = track_breaks(TRACK_ASYNC) ? NULL : asynchronous(name);
	if (what)
		*async = what;
	return a->start < a->end;
}

int areas_read(int fd, struct areas *l, struct zns_err *err)
{
	cleanup_free char *text = NULL;
	char *line, *next;
	size_t len;
	int ret = read_again(fd, &text, &len);

	l->nr = 0;
	l->async = NULL;
	if (ret == -ESRCH)
		return 0;
	if (ret)
		return zns_fail_sys(err, ret, "cannot read the areas of a process");
	for (line = text; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		if (zns_grow(l->a, l->nr, l->max))
			return zns_fail(err, -ENOMEM, "no memory for the areas of a process");
		if (!parse(line, &l->a[l->nr], &l->async))
			return zns_fail(
				err, -EPROTO,
				"/proc/PID/maps has a line that this program cannot read: another kernel than it knows?");
		/* skip [vsyscall], which is in the kernel's half of the addresses */
		if (!(l->a[l->nr].start >> 63))
			l->nr++;
	}
	return 0;
}

void areas_free(struct areas *l)
{
	free(l->a);
	*l = (struct areas){ 0 };
}
