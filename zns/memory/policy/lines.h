/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_LINES_H
#define MEM_LINES_H
/*
 * The table in which the pagers of a machine tell of their contexts (dram.h): a file that only its
 * owner may use, with a line for each. A line belongs to who holds a lock on it, so one of a pager
 * that died is nobody's; what is damaged is skipped.
 */
#include "dram.h"
#include "zns/err.h"
#include "zns/memkeep.h"

#define LINES_MAX ZNS_MEMKEEP_CONTEXTS_MAX

struct lines {
	int fd;
	unsigned int own;
};

/* @dir: the directory of the contexts. -EPERM: somebody else may write to the file. */
int lines_open(struct lines *t, int dir, struct zns_err *err);
void lines_close(struct lines *t); /* our line is nobody's */
int lines_write(const struct lines *t, const struct dram_line *line);
/* All that live, ours too; *@own is its number. At most LINES_MAX. */
unsigned int lines_read(const struct lines *t, struct dram_line *line, unsigned int *own);

#endif
