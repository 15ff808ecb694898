/* SPDX-License-Identifier: GPL-2.0-only */
/* What a drive is called: read from a tree such as sysfs has it. */
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <cmocka.h>

#include "zns/dev.h"

static char top[] = "/tmp/zns-drive-name-XXXXXX", spec[PATH_MAX];

/* A file of the tree, with the folders above it. */
static void put(const char *path, const char *text)
{
	char at[PATH_MAX];
	FILE *f;

	snprintf(at, sizeof(at), "%s/%s", top, path);
	for (char *p = at + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(at, 0700);
		*p = '/';
	}
	f = fopen(at, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void put_device(const char *kind, dev_t dev, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "dev/%s/%u:%u/device/%s", kind, major(dev), minor(dev), name);
	put(path, text);
}

static void is(const char *what, const char *model, const char *firmware, const char *serial)
{
	struct zns_drive d;

	memset(&d, 'x', sizeof(d));
	zns_dev_drive(top, what, &d);
	assert_string_equal(d.model, model);
	assert_string_equal(d.firmware, firmware);
	assert_string_equal(d.serial, serial);
}

/* /dev/ngXnY is a character device; sysfs fills its texts up with blanks. */
static void character_device(void **state)
{
	struct stat st;

	assert_return_code(stat("/dev/null", &st), errno);
	is("/dev/null", "", "", "");
	put_device("char", st.st_rdev, "model", "WZS4C8T4TDSP303                         \n");
	is("/dev/null", "WZS4C8T4TDSP303", "", "");
	put_device("char", st.st_rdev, "firmware_rev", "R1234567\n");
	put_device("char", st.st_rdev, "serial", "  A 1 \n");
	is("/dev/null", "WZS4C8T4TDSP303", "R1234567", "  A 1");
}

static void block_device(void **state)
{
	dev_t dev = makedev(250, 7);

	snprintf(spec, sizeof(spec), "%s/nvme7n1", top);
	if (mknod(spec, S_IFBLK | 0600, dev))
		skip(); /* not for everybody */
	is(spec, "", "", "");
	/* a drive without a link of its own is named after its device */
	put("class/nvme/nvme7/model", "by name\n");
	put("class/nvme/nvme7/serial", "S\n");
	is(spec, "by name", "", "S");
	put_device("block", dev, "model", "by its link\n");
	put_device("block", dev, "rev", "0001\n");
	is(spec, "by its link", "0001", "S");
}

/* The drive is the one below the file system. */
static void file_system(void **state)
{
	struct stat st;

	assert_return_code(stat(top, &st), errno);
	put_device("block", st.st_dev, "model", "below\n");
	snprintf(spec, sizeof(spec), "zonefs:%s", top);
	is(spec, "below", "", "");
}

static void no_drive(void **state)
{
	char longest[200];

	is(top, "", "", "");
	is("emu:/dev/null", "", "", "");
	is("zonefs:", "", "", "");
	is("/nowhere", "", "", "");
	memset(longest, 'm', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	put_device("char", makedev(1, 5), "model", longest); /* cut */
	longest[63] = '\0';
	is("/dev/zero", longest, "", "");
	put_device("char", makedev(1, 5), "model", "\n");
	is("/dev/zero", "", "", "");
}

static int setup(void **state)
{
	return mkdtemp(top) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[PATH_MAX];

	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(character_device),
		cmocka_unit_test(block_device),
		cmocka_unit_test(file_system),
		cmocka_unit_test(no_drive),
	};

	return cmocka_run_group_tests_name("drive_name", tests, setup, teardown);
}
