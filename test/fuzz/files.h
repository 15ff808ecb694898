/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FUZZ_FILES_H
#define FUZZ_FILES_H
/* A directory in memory for a target whose input is files; it goes at the end of the process. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "zns/util.h"

static char files_dir[] = "/dev/shm/fuzz-XXXXXX";

static void files_end(void)
{
	char cmd[96];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", files_dir);
	if (system(cmd))
		return;
}

static void files_begin(void)
{
	if (!mkdtemp(files_dir))
		abort();
	atexit(files_end);
}

static void files_mkdir(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", files_dir, name);
	if (mkdir(path, 0700))
		abort();
}

static void files_put(const char *name, const void *data, size_t size)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", files_dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || zns_write_all(fd, data, size))
		abort();
	close(fd);
}

#endif
