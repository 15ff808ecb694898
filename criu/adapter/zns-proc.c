/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads about a task's memory from /proc, without the details that criu does not use. See
 * include/zns-proc.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image.h"
#include "log.h"
#include "mem.h"
#include "pagemap-cache.h"
#include "pagemap_scan.h"
#include "util.h"
#include "vma.h"
#include "zns-memfd.h"
#include "zns-proc.h"
#include "zns-state.h"
#include "zns-smaps.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/*
 * bytes; smaller areas are not left out: their scan costs nothing, and they may be special ones,
 * such as those that uprobes put into a task
 */
#define LARGE (4UL << 20)

void zns_narrow_scan(const struct vma_area *vma, struct pm_scan_arg *args)
{
	if (!vma || zns_session.state != ZNS_DUMP || !vma_area_is(vma, VMA_ANON_PRIVATE) ||
	    vma_area_len(vma) < LARGE || args->start < vma->e->start || args->end > vma->e->end)
		return;
	args->category_inverted &= ~PAGE_IS_FILE;
	args->category_mask &= ~PAGE_IS_FILE;
}

/* Copies the lines that criu uses from @in to @out. */
static int copy_lines(FILE *in, FILE *out)
{
	char *line = NULL;
	size_t size = 0;
	int ret = 0;

	while (!ret && getline(&line, &size, in) > 0)
		if (zns_smaps_wants(line))
			ret = fputs(line, out) < 0;
	free(line);
	return ret || ferror(in) || fflush(out) ? -1 : 0;
}

int zns_read_smaps(pid_t pid)
{
	char piece[ZNS_SMAPS_PIECE];
	int from, to, fd, ret = -1;
	FILE *in, *out;

	from = open_proc(pid, "smaps");
	if (from < 0 || zns_session.state != ZNS_DUMP)
		return from;
	fd = zns_memfd("zns-smaps");
	to = fd < 0 ? -1 : dup(fd);
	in = fdopen(from, "r");
	out = to < 0 ? NULL : fdopen(to, "w");
	if (in && out && !setvbuf(in, piece, _IOFBF, sizeof(piece)))
		ret = copy_lines(in, out);
	if (ret || lseek(fd, 0, SEEK_SET)) {
		pr_perror("Can't read the areas of task %d", pid);
		close_safe(&fd);
	}
	if (in)
		fclose(in);
	else
		close(from);
	if (out)
		fclose(out);
	else
		close_safe(&to);
	return fd;
}
