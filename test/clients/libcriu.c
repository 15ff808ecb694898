/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A client of stock libcriu, as test/zonetests/rpc.py runs it:
 *   libcriu dump|restore|check [--binary CRIU | --service SOCKET] [--config FILE] [--images DIR]
 * [--pid PID] [--keep]
 *           [--log NAME] [--notify COMMAND]
 * It knows nothing of zones: they come from the configuration file. Prints "pid N" after a restore,
 * and each notification; exit code 0, or 1 with errno.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "criu.h"

static const char *command; /* run at post-dump */

static int notify(char *action, criu_notify_arg_t na)
{
	printf("notify %s\n", action);
	fflush(stdout);
	if (!strcmp(action, "post-dump") && command)
		return system(command) ? -1 : 0;
	return 0;
}

static int option(const char *name, const char *value)
{
	int fd;

	if (!strcmp(name, "--binary"))
		return criu_set_service_binary(value);
	if (!strcmp(name, "--service"))
		return criu_set_service_address(value);
	if (!strcmp(name, "--config"))
		return criu_set_config_file(value);
	if (!strcmp(name, "--log"))
		return criu_set_log_file(value);
	if (!strcmp(name, "--images")) {
		fd = open(value, O_RDONLY | O_DIRECTORY);
		if (fd < 0)
			return -errno;
		criu_set_images_dir_fd(fd);
		return 0;
	}
	if (!strcmp(name, "--pid")) {
		criu_set_pid(atoi(value));
		return 0;
	}
	if (!strcmp(name, "--notify")) {
		command = value;
		criu_set_notify_cb(notify);
		return 0;
	}
	return -EINVAL;
}

int main(int argc, char **argv)
{
	int i, ret = -EINVAL;

	if (argc < 2 || criu_init_opts())
		return 2;
	criu_set_log_level(4);
	for (i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--keep")) {
			criu_set_leave_running(true);
			continue;
		}
		if (i + 1 == argc || option(argv[i], argv[i + 1])) {
			fprintf(stderr, "libcriu: bad option %s\n", argv[i]);
			return 2;
		}
		i++;
	}
	if (!strcmp(argv[1], "dump"))
		ret = criu_dump();
	else if (!strcmp(argv[1], "restore"))
		ret = criu_restore();
	else if (!strcmp(argv[1], "check"))
		ret = criu_check();
	if (ret < 0) {
		fprintf(stderr, "libcriu: %s: %d, errno %d\n", argv[1], ret, errno);
		return 1;
	}
	if (!strcmp(argv[1], "restore"))
		printf("pid %d\n", ret);
	return 0;
}
