/* SPDX-License-Identifier: GPL-2.0-only */
/* A plugin of criu that keeps files of its own in the image directory, like those for GPUs: a dump
 * writes a small one and one of 3 MiB; a restore fails unless both exist unchanged. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "criu-plugin.h"

#define LARGE (3u << 20)

static const char *const names[] = { "testplugin.img", "testplugin-memory.img" };
static const size_t sizes[] = { 4000, LARGE };

static void fill(unsigned char *buf, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++) {
		seed = seed * 1103515245u + 12345u;
		buf[i] = (unsigned char)(seed >> 16);
	}
}

static int write_files(void)
{
	static unsigned char buf[LARGE];

	for (int i = 0; i < 2; i++) {
		int fd = openat(criu_get_image_dir(), names[i], O_WRONLY | O_CREAT | O_TRUNC, 0600);

		fill(buf, sizes[i], (unsigned int)i);
		if (fd < 0 || write(fd, buf, sizes[i]) != (ssize_t)sizes[i])
			return -errno;
		close(fd);
	}
	return 0;
}

static int check_files(void)
{
	static unsigned char buf[LARGE + 1], want[LARGE];

	for (int i = 0; i < 2; i++) {
		int fd = openat(criu_get_image_dir(), names[i], O_RDONLY);

		if (fd < 0)
			return -errno;
		fill(want, sizes[i], (unsigned int)i);
		if (read(fd, buf, sizes[i] + 1) != (ssize_t)sizes[i] || memcmp(buf, want, sizes[i]))
			return -EBADMSG;
		close(fd);
	}
	return 0;
}

static int checkpoint_devices(int pid)
{
	return write_files();
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__CHECKPOINT_DEVICES, checkpoint_devices)

static int init(int stage)
{
	return stage == CR_PLUGIN_STAGE__RESTORE ? check_files() : 0;
}

CR_PLUGIN_REGISTER("testplugin", init, cr_plugin_dummy_exit)
