/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_LINES_H
#define MEM_LINES_H
/*
 * The table in which the pagers of a machine publish the state of their contexts (dram.h): a file
 * that only its owner may use, with a line for each context. A pager holds a lock on its line, so
 * the line of a dead pager is free. A damaged line is skipped.
 */
#include "dram.h"
#include "zns/err.h"
#include "zns/memkeep.h"

#define LINES_MAX ZNS_MEMKEEP_CONTEXTS_MAX

struct lines {
	int fd;
	unsigned int own;
};

/*
 * Opens the table. @dir: the directory of the contexts. -EPERM: another user may write to the file.
 */
int lines_open(struct lines *t, int dir, struct zns_err *err);
void lines_close(struct lines *t); /* frees our line */
int lines_write(const struct lines *t, const struct dram_line *line);
/*
 * Reads the lines of all contexts whose pager lives, at most LINES_MAX. *@own: index of our own
 * line.
 */
unsigned int lines_read(const struct lines *t, struct dram_line *line, unsigned int *own);

#endif
