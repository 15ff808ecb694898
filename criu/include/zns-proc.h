/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_PROC_H__
#define __CR_ZNS_PROC_H__
/* Less work for the kernel where a dump into zones asks for a task's areas and pages. The answers
 * are those that stock criu gets. */
#include <sys/types.h>

struct pm_scan_arg;
struct vma_area;

/* /proc/PID/smaps, or its lines that criu looks at. -1: printed. */
int zns_read_smaps(pid_t pid);
/* Called before a PAGEMAP_SCAN. @vma, if not NULL: the area that was requested last. Pages of
 * anonymous memory never belong to a file. Asking that for each page takes four times as long as
 * all else. */
void zns_narrow_scan(const struct vma_area *vma, struct pm_scan_arg *args);

#endif
