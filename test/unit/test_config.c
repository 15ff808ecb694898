/* SPDX-License-Identifier: GPL-2.0-only */
/* The registry of devices and zns.conf. */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "zns/config.h"

static char dir[128], conf[160];
static uint8_t uuid_a[ZNS_UUID_LEN], uuid_b[ZNS_UUID_LEN];
#define TEXT_A "123e4567-e89b-42d3-a456-426614174000"
#define TEXT_B "123e4567-e89b-42d3-a456-426614174001"

static const char *at(const char *base, const char *name)
{
	static char path[4][PATH_MAX];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, PATH_MAX, "%s/%s", base, name);
	return p;
}

static void put(const char *path, const char *text, size_t len)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(zns_write_all(fd, text, len), 0);
}
#define PUT(path, text) put(path, text, sizeof(text) - 1)

/* A fresh, not yet existing configuration for each test. */
static int begin(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char real[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s/zns-conf-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir) || !realpath(dir, real) || strlen(real) >= sizeof(dir))
		return -1;
	strcpy(dir, real);
	snprintf(conf, sizeof(conf), "%s/deep/conf", dir);
	setenv("ZNS_CONFIG", conf, 1);
	unsetenv("ZNS_DEV");
	return zns_uuid_parse(TEXT_A, uuid_a) || zns_uuid_parse(TEXT_B, uuid_b);
}

static int end(void **state)
{
	char cmd[200];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd);
}

#define assert_says(err, text)                                            \
	do {                                                              \
		if (!strstr((err).msg, text))                             \
			fail_msg("\"%s\" lacks \"%s\"", (err).msg, text); \
		assert_null(strchr((err).msg, '\n'));                     \
	} while (0)

static void dirs(void **state)
{
	assert_string_equal(zns_config_dir(), conf);
	setenv("ZNS_CONFIG", "", 1);
	assert_string_equal(zns_config_dir(), "/etc/zns-criu");
	setenv("ZNS_RUN", "/x", 1);
	assert_string_equal(zns_run_dir(), "/x");
	unsetenv("ZNS_RUN");
	assert_string_equal(zns_run_dir(), "/run/zns-criu");
}

static void register_and_find(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_registered r, *list;
	char spec[300], key[300];
	struct stat st;
	size_t nr;

	assert_int_equal(zns_registered_list(&list, &nr, &err), 0);
	assert_int_equal(nr, 0);
	assert_null(list);
	snprintf(spec, sizeof(spec), "emu:%s/a.img", dir);
	assert_int_equal(zns_register(uuid_a, spec, &err), 0);
	assert_int_equal(stat(at(conf, "devices.d"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(conf, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(zns_registered_by_uuid(uuid_a, &r, &err), 0);
	assert_string_equal(r.path, spec);
	assert_memory_equal(r.uuid, uuid_a, ZNS_UUID_LEN);
	memset(key, 'x', sizeof(key)); /* the key ends only where it is terminated */
	assert_int_equal(zns_register_key(uuid_a, "file:/root/key", &err), 0);
	assert_int_equal(zns_registered_key(uuid_a, key, sizeof(key), &err), 0);
	assert_string_equal(key, "file:/root/key");
	assert_int_equal(zns_registered_key(uuid_a, key, strlen("file:/root/key"), &err),
			 -ENAMETOOLONG);
	/* another spelling of the same path */
	snprintf(spec, sizeof(spec), "emu:%s/./x/..//a.img", dir);
	assert_int_equal(zns_registered_by_path(spec, &r, &err), 0);
	assert_memory_equal(r.uuid, uuid_a, ZNS_UUID_LEN);

	assert_int_equal(zns_registered_by_uuid(uuid_b, &r, &err), -ENOENT);
	assert_says(err, TEXT_B);
	assert_says(err, "znsctl register");
	assert_int_equal(zns_registered_by_path("emu:/none", &r, &err), -ENOENT);
	assert_says(err, "nothing is there: `znsctl create emu:/none`");
	assert_int_equal(zns_registered_by_path("emu:/bin/sh", &r, &err), -ENOENT);
	assert_says(err, "znsctl register emu:/");
	assert_says(err, "znsctl format");
	assert_int_equal(zns_registered_by_path("/bin/sh", &r, &err), -ENOENT);
	assert_says(err, "a store in it is file:/");
	assert_int_equal(zns_registered_by_path("/dev/nosuch", &r, &err), -ENOENT);
	assert_says(err, "no such device node");
	assert_int_equal(zns_registered_by_path("shop", &r, &err), -ENOENT);
	assert_says(err, "shop is not a device");

	snprintf(spec, sizeof(spec), "emu:%s/b.img", dir);
	assert_int_equal(zns_register(uuid_b, spec, &err), 0);
	assert_int_equal(zns_registered_list(&list, &nr, &err), 0);
	assert_int_equal(nr, 2);
	free(list);
	assert_int_equal(zns_unregister(uuid_a, &err), 0);
	assert_int_equal(zns_unregister(uuid_a, &err), -ENOENT);
	assert_says(err, TEXT_A);
	assert_int_equal(zns_registered_by_uuid(uuid_a, &r, &err), -ENOENT);
}

static void one_entry_per_path(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_registered r, *list;
	char spec[300], other[300];
	size_t nr;

	snprintf(spec, sizeof(spec), "emu:%s/a.img", dir);
	PUT(spec + 4, "x");
	snprintf(other, sizeof(other), "emu:%s/link.img", dir);
	assert_int_equal(symlink("a.img", other + 4), 0);
	assert_int_equal(zns_register(uuid_a, spec, &err), 0);
	assert_int_equal(zns_register(uuid_b, other, &err), 0);
	assert_int_equal(zns_registered_list(&list, &nr, &err), 0);
	assert_int_equal(nr, 1);
	assert_memory_equal(list[0].uuid, uuid_b, ZNS_UUID_LEN);
	assert_string_equal(list[0].path, spec);
	free(list);
	/* the same UUID elsewhere: replaced */
	snprintf(other, sizeof(other), "emu:%s/moved.img", dir);
	assert_int_equal(zns_register(uuid_b, other, &err), 0);
	assert_int_equal(zns_registered_by_uuid(uuid_b, &r, &err), 0);
	assert_string_equal(r.path, other);
	/* a file and the same file as a raw path are different specs */
	assert_int_equal(zns_registered_by_path(other + 4, &r, &err), -ENOENT);
}

static void damaged_entries(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} bad[] = {
		{ "", 0 },
		{ "path\n", 5 },
		{ "path = \n", 8 },
		{ "path = rel\n", 11 },
		{ "path = emu:rel\n", 15 },
		{ "other = /dev/x\n", 15 },
		{ "path = /dev/x\ngarbage\n", 22 },
		{ "path = /dev/\0x\n", 15 },
		{ "Path = /dev/x\n", 14 },
		{ "path = /dev/\033[1m\n", 17 },
	};
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_registered r, *list;
	char longer[5000];
	size_t nr;

	assert_int_equal(zns_register(uuid_b, "/dev/zns-test-none", &err), 0);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++) {
		put(at(conf, "devices.d/" TEXT_A), bad[i].text, bad[i].len);
		assert_int_equal(zns_registered_by_uuid(uuid_a, &r, &err), -EINVAL);
		assert_says(err, TEXT_A);
		assert_says(err, "znsctl register");
		assert_int_equal(zns_registered_list(&list, &nr, &err), -EINVAL);
		assert_null(list);
	}
	memset(longer, 'a', sizeof(longer));
	memcpy(longer, "path = /", 8);
	put(at(conf, "devices.d/" TEXT_A), longer, 600);
	assert_int_equal(zns_registered_by_uuid(uuid_a, &r, &err), -EINVAL);
	put(at(conf, "devices.d/" TEXT_A), longer, sizeof(longer));
	assert_int_equal(zns_registered_by_uuid(uuid_a, &r, &err), -EFBIG);
	/* comments, blanks, and no newline at the end are fine */
	PUT(at(conf, "devices.d/" TEXT_A), "# mine\n\n  path=/dev/x y");
	assert_int_equal(zns_registered_by_uuid(uuid_a, &r, &err), 0);
	assert_string_equal(r.path, "/dev/x y");
	/* files that are no entries */
	PUT(at(conf, "devices.d/README"), "junk");
	PUT(at(conf, "devices.d/." TEXT_A ".0123"), "junk");
	PUT(at(conf, "devices.d/123E4567-E89B-42D3-A456-426614174000"), "junk");
	assert_int_equal(zns_registered_list(&list, &nr, &err), 0);
	assert_int_equal(nr, 2);
	free(list);
}

static void bad_paths(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char big[600];

	memset(big, 'b', sizeof(big) - 1);
	big[0] = '/';
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(zns_register(uuid_a, "", &err), -EINVAL);
	assert_int_equal(zns_register(uuid_a, "emu:", &err), -EINVAL);
	assert_int_equal(zns_register(uuid_a, "emu:/x\ny", &err), -EINVAL);
	assert_int_equal(zns_register(uuid_a, big, &err), -ENAMETOOLONG);
	setenv("ZNS_CONFIG", "/proc/none/conf", 1);
	assert_true(zns_register(uuid_a, "/dev/x", &err) < 0);
	assert_says(err, "/proc/none");
}

static void canonical(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char out[256], want[300], cwd[PATH_MAX];

	assert_int_equal(chdir(dir), 0);
	assert_int_equal(zns_canonical_spec("emu:rel", out, sizeof(out), &err), 0);
	snprintf(want, sizeof(want), "emu:%s/rel", dir);
	assert_string_equal(out, want);
	assert_int_equal(zns_canonical_spec("rel", out, sizeof(out), &err), 0);
	assert_string_equal(out, want + 4);
	assert_int_equal(zns_canonical_spec("emu:./a//b/../c/", out, sizeof(out), &err), 0);
	snprintf(want, sizeof(want), "emu:%s/a/c", dir);
	assert_string_equal(out, want);
	assert_int_equal(zns_canonical_spec("/", out, sizeof(out), &err), 0);
	assert_string_equal(out, "/");
	assert_int_equal(zns_canonical_spec("/../..", out, sizeof(out), &err), 0);
	assert_string_equal(out, "/");
	/* device links stay as given */
	assert_int_equal(zns_canonical_spec("/dev//stdin", out, sizeof(out), &err), 0);
	assert_string_equal(out, "/dev/stdin");
	/* a link in the middle is followed */
	assert_int_equal(mkdir(at(dir, "real"), 0700), 0);
	assert_int_equal(symlink("real", at(dir, "sym")), 0);
	assert_int_equal(zns_canonical_spec("emu:sym/new", out, sizeof(out), &err), 0);
	snprintf(want, sizeof(want), "emu:%s/real/new", dir);
	assert_string_equal(out, want);
	assert_int_equal(symlink("loop", at(dir, "loop")), 0);
	assert_int_equal(zns_canonical_spec("emu:loop/x", out, sizeof(out), &err), -ELOOP);
	assert_int_equal(zns_canonical_spec("emu:rel", out, 8, &err), -ENAMETOOLONG);
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(zns_canonical_spec("emu:rel", out, sizeof(out), &err), 0);
	assert_string_equal(out, "emu:/rel");
}

static void conf_get_set(void **state)
{
	uint64_t seconds;
	struct zns_err err = ZNS_ERR_INIT;
	cleanup_free uint8_t *text = NULL;
	char v[64];
	size_t len;

	assert_int_equal(zns_config_get("default-device", v, sizeof(v), &err), -ENOENT);
	assert_says(err, "default-device");
	assert_int_equal(zns_config_set("default-device", "emu:/a", &err), 0);
	assert_int_equal(zns_config_get("default-device", v, sizeof(v), &err), 0);
	assert_string_equal(v, "emu:/a");
	PUT(at(conf, "zns.conf"),
	    "# ours\n\ndocker-qos=3\n default-device = x\ndocker-dev = a = b\ndefault-device = y");
	assert_int_equal(zns_config_get("default-device", v, sizeof(v), &err), 0);
	assert_string_equal(v, "y");
	assert_int_equal(zns_config_get("docker-dev", v, sizeof(v), &err), 0);
	assert_string_equal(v, "a = b");
	assert_int_equal(zns_config_get("encrypt-key", v, sizeof(v), &err), -ENOENT);
	assert_int_equal(zns_config_set("default-device", "z", &err), 0);
	assert_int_equal(zns_read_file(AT_FDCWD, at(conf, "zns.conf"), 1000, &text, &len), 0);
	assert_string_equal((char *)text,
			    "# ours\n\ndocker-qos=3\ndefault-device = z\ndocker-dev = a = b\n");
	assert_int_equal(zns_config_set("default-device", NULL, &err), 0);
	assert_int_equal(zns_config_keep_tracking(&seconds, &err), 0);
	assert_int_equal(seconds, ZNS_KEEP_TRACKING_S);
	assert_int_equal(zns_config_set("keep-tracking", "90m", &err), 0);
	assert_int_equal(zns_config_keep_tracking(&seconds, &err), 0);
	assert_int_equal(seconds, 5400);
	assert_int_equal(zns_config_set("keep-tracking", "soon", &err), 0);
	assert_int_equal(zns_config_keep_tracking(&seconds, &err), -EINVAL);
	assert_int_equal(zns_config_set("keep-tracking", NULL, &err), 0);
	assert_int_equal(zns_config_get("default-device", v, sizeof(v), &err), -ENOENT);
	assert_int_equal(zns_config_get("docker-qos", v, 1, &err), -ENAMETOOLONG);
	assert_int_equal(zns_config_get("docker-qos", v, 2, &err), 0);
	assert_string_equal(v, "3");
}

static void conf_rejects(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char v[64], *big;

	assert_int_equal(zns_config_set("Bad Key", "x", &err), -EINVAL);
	assert_int_equal(zns_config_set("", "x", &err), -EINVAL);
	assert_int_equal(zns_config_set("k=", "x", &err), -EINVAL);
	assert_int_equal(zns_config_set("k", "", &err), -EINVAL);
	assert_int_equal(zns_config_set("k", "a\nb = c", &err), -EINVAL);
	assert_int_equal(zns_config_set("k", " a", &err), -EINVAL);
	assert_int_equal(zns_config_set("docker-qos", "a", &err), 0);
	PUT(at(conf, "zns.conf"), "docker-qos = 1\n\n# c\nno equals sign\n");
	assert_int_equal(zns_config_get("docker-qos", v, sizeof(v), &err), -EINVAL);
	assert_says(err, "zns.conf:4");
	PUT(at(conf, "zns.conf"), "docker-qos = 1\n= 2\n");
	assert_int_equal(zns_config_get("docker-qos", v, sizeof(v), &err), -EINVAL);
	PUT(at(conf, "zns.conf"), "docker-qos = 1\ndocker-dev = \0\n");
	assert_int_equal(zns_config_get("docker-qos", v, sizeof(v), &err), -EINVAL);
	/* a misspelled key, whichever is asked for */
	PUT(at(conf, "zns.conf"), "docker-qos = 1\n\ndocker-qso = 5\n");
	assert_int_equal(zns_config_get("default-device", v, sizeof(v), &err), -EINVAL);
	assert_says(err, "zns.conf:3: \"docker-qso\" is not known; keys are default-device, ");
	assert_says(err, "restore-others");
	big = calloc(1, 70000);
	assert_non_null(big);
	memset(big, '#', 69999);
	put(at(conf, "zns.conf"), big, 69999);
	free(big);
	assert_int_equal(zns_config_get("docker-qos", v, sizeof(v), &err), -EFBIG);
	unlink(at(conf, "zns.conf"));
	assert_int_equal(mkdir(at(conf, "zns.conf"), 0700), 0);
	assert_int_equal(zns_config_get("docker-qos", v, sizeof(v), &err), -EISDIR);
}

static void resolve(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_registered r;

	assert_int_equal(zns_resolve_device(NULL, &r, &err), -ENODEV);
	assert_int_equal(err.code, -ENODEV);
	assert_says(err, "znsctl create");
	assert_int_equal(zns_register(uuid_a, "emu:/zns-test/a", &err), 0);
	assert_int_equal(zns_resolve_device(NULL, &r, &err), 0);
	assert_string_equal(r.path, "emu:/zns-test/a");
	assert_int_equal(zns_register(uuid_b, "emu:/zns-test/b", &err), 0);
	assert_int_equal(zns_resolve_device(NULL, &r, &err), -ENODEV);
	assert_says(err, "ZNS_DEV");
	assert_says(err, "register --default DEV");
	assert_says(err, "emu:/zns-test/a");
	assert_int_equal(zns_resolve_device("", &r, &err), -ENODEV);

	assert_int_equal(zns_resolve_device("emu:/zns-test/b", &r, &err), 0);
	assert_memory_equal(r.uuid, uuid_b, ZNS_UUID_LEN);
	assert_int_equal(zns_resolve_device(TEXT_A, &r, &err), 0);
	assert_string_equal(r.path, "emu:/zns-test/a");
	assert_int_equal(zns_resolve_device("emu:/zns-test/c", &r, &err), -ENODEV);
	assert_int_equal(err.code, -ENODEV);
	assert_says(err, "znsctl create emu:/zns-test/c");
	assert_int_equal(zns_resolve_device("123e4567-e89b-42d3-a456-426614174009", &r, &err),
			 -ENODEV);

	assert_int_equal(zns_config_set("default-device", TEXT_B, &err), 0);
	assert_int_equal(zns_resolve_device(NULL, &r, &err), 0);
	assert_memory_equal(r.uuid, uuid_b, ZNS_UUID_LEN);
	assert_int_equal(zns_config_set("default-device", "emu:/zns-test/a", &err), 0);
	assert_int_equal(zns_resolve_device(NULL, &r, &err), 0);
	assert_memory_equal(r.uuid, uuid_a, ZNS_UUID_LEN);
	/* the environment goes before the default, the argument before both */
	setenv("ZNS_DEV", TEXT_B, 1);
	assert_int_equal(zns_resolve_device(NULL, &r, &err), 0);
	assert_memory_equal(r.uuid, uuid_b, ZNS_UUID_LEN);
	assert_int_equal(zns_resolve_device(TEXT_A, &r, &err), 0);
	assert_memory_equal(r.uuid, uuid_a, ZNS_UUID_LEN);
	setenv("ZNS_DEV", "/dev/none", 1);
	assert_int_equal(zns_resolve_device(NULL, &r, &err), -ENODEV);
	assert_says(err, "ZNS_DEV");
	unsetenv("ZNS_DEV");
	/* no fallback when the default is wrong */
	assert_int_equal(zns_config_set("default-device", "/dev/none", &err), 0);
	assert_int_equal(zns_resolve_device(NULL, &r, &err), -ENODEV);
	assert_says(err, "default-device");
	PUT(at(conf, "zns.conf"), "junk\n");
	assert_int_equal(zns_resolve_device(NULL, &r, &err), -EINVAL);
	/* errors may be dropped */
	assert_int_equal(zns_resolve_device("/dev/none", &r, NULL), -ENODEV);
}

static void parallel_sets(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	static const char *const keys[8] = { "default-device",   "encrypt-key",  "docker-qos",
					     "docker-admission", "docker-alloc", "docker-stripe",
					     "docker-dev",       "docker-criu" };
	char v[16];

	for (int i = 0; i < 8; i++) {
		pid_t pid = fork();

		if (!pid) {
			int rc = 0;

			for (int k = 0; k < 5 && !rc; k++) {
				snprintf(v, sizeof(v), "%d", k);
				rc = zns_config_set(keys[i], v, NULL);
			}
			_exit(rc ? 1 : 0);
		}
		assert_true(pid > 0);
	}
	for (int i = 0; i < 8; i++) {
		int st;

		assert_true(wait(&st) > 0);
		assert_int_equal(st, 0);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(zns_config_get(keys[i], v, sizeof(v), &err), 0);
		assert_string_equal(v, "4");
	}
}

static void tenants(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_tenant t;

	/* without the directory or the file there is no rule */
	assert_int_equal(zns_tenant_find("web", 1000, &t, &err), 0);
	assert_string_equal(t.who, "");
	assert_int_equal(zns_config_set("default-device", "x", &err), 0);
	PUT(at(conf, "tenants.conf"),
	    "# who may have what\n\n"
	    "  name web-[0-9]*   max-qos=500MiB/s max-groups=5\n"
	    "uid 1000-1999\ttotal-qos=2GiB/s  total-groups=8 max-qos=1GiB/s\n"
	    "name db max-qos=2GiB/s\n"
	    "uid 0 max-groups=3\n"
	    "name * max-qos=100");
	assert_int_equal(zns_tenant_find("web-12", 1000, &t, &err), 0);
	assert_string_equal(t.who, "name web-[0-9]*");
	assert_int_equal(t.line, 3);
	assert_int_equal(t.max_qos_mibps, 500);
	assert_int_equal(t.max_groups, 5);
	assert_int_equal(t.total_qos_mibps, 0);
	assert_int_equal(t.total_groups, 0);
	/* the name does not fit, the user does */
	assert_int_equal(zns_tenant_find("web-x", 1999, &t, &err), 0);
	assert_int_equal(t.line, 4);
	assert_int_equal(t.max_qos_mibps, 1024);
	assert_int_equal(t.total_qos_mibps, 2048);
	assert_int_equal(t.total_groups, 8);
	/* the first one counts, also against a user's rule behind it */
	assert_int_equal(zns_tenant_find("db", 0, &t, &err), 0);
	assert_int_equal(t.max_qos_mibps, 2048);
	assert_int_equal(t.max_groups, 0);
	assert_int_equal(zns_tenant_find("other", 0, &t, &err), 0);
	assert_int_equal(t.max_groups, 3);
	/* an unknown user belongs to no tenant */
	assert_int_equal(zns_tenant_find("other", -1, &t, &err), 0);
	assert_int_equal(t.line, 7);
	assert_int_equal(t.max_qos_mibps, 100);
	PUT(at(conf, "tenants.conf"),
	    "name m* max-memory=4G total-memory=1T memory-rate=50 max-memory-min=64M\n");
	assert_int_equal(zns_tenant_find("mem", -1, &t, &err), 0);
	assert_int_equal(t.max_memory, GIB(4));
	assert_int_equal(t.total_memory, GIB(1024));
	assert_int_equal(t.memory_mibps, 50);
	assert_int_equal(t.max_memory_min, MIB(64));
	PUT(at(conf, "tenants.conf"), "name w* weight=300 max-weight=300\nname * weight=100\n");
	assert_int_equal(zns_tenant_find("web", -1, &t, &err), 0);
	assert_int_equal(t.weight, 300);
	assert_int_equal(t.max_weight, 300);
	assert_int_equal(zns_tenant_find("db", -1, &t, &err), 0);
	assert_int_equal(t.weight, 100);
	assert_int_equal(t.max_weight, 0);
	PUT(at(conf, "tenants.conf"), "uid 7 max-qos=5\n");
	assert_int_equal(zns_tenant_find("other", 8, &t, &err), 0);
	assert_string_equal(t.who, "");
}

static void tenants_wrong(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "web max-qos=5", "begins with `name PATTERN` or `uid N[-M]`" },
		{ "name", "who is meant" },
		{ "name web", "sets no limit" },
		{ "name web max-qos", "a limit is max-qos=RATE" },
		{ "name web max_qos=5", "a limit is max-qos=RATE" },
		{ "name web max-qos=", "reads like 500" },
		{ "name web max-qos=fast", "reads like 500" },
		{ "name web max-qos=0", "reads like 500" },
		{ "name web max-groups=-1", "a number of groups" },
		{ "name web max-groups=1.5", "a number of groups" },
		{ "name web max-groups=99999999999999999999", "a number of groups" },
		{ "name web max-groups=0", "1 or more" },
		{ "name web max-groups=1 max-groups=2", "given twice" },
		{ "name web max-weight=99", "a weight is 100 to 10000" },
		{ "name web max-weight=10001", "a weight is 100 to 10000" },
		{ "name web max-weight=many", "a weight is 100 to 10000" },
		{ "name web max-weight=200 max-weight=200", "given twice" },
		{ "name web weight=99", "a weight is 100 to 10000" },
		{ "name web weight=10001", "a weight is 100 to 10000" },
		{ "name web weight=", "a weight is 100 to 10000" },
		{ "name web weight=200 weight=200", "given twice" },
		{ "name web weight=201 max-weight=200",
		  "the rule's weight is above its max-weight" },
		{ "name web max-weight=200 weight=201",
		  "the rule's weight is above its max-weight" },
		{ "name web max-memory=0", "1 or more" },
		{ "name web max-memory=", "a size reads like" },
		{ "name web max-memory=much", "a size reads like" },
		{ "name web max-memory=99999999999999999999", "a size reads like" },
		{ "name web total-memory=1G total-memory=1G", "given twice" },
		{ "name web memory-rate=0", "reads like 500" },
		{ "uid root max-groups=1", "a user is a number" },
		{ "uid 5-4 max-groups=1", "a user is a number" },
		{ "uid 5- max-groups=1", "a user is a number" },
		{ "uid -5 max-groups=1", "a user is a number" },
	};
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_tenant t;
	char text[200];

	assert_int_equal(zns_config_set("default-device", "x", &err), 0);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++) {
		/* the wrong line stands behind a rule that applies, and must be noticed
		 * nevertheless */
		snprintf(text, sizeof(text), "name * max-qos=5\n# a\n%s\n", bad[i].text);
		put(at(conf, "tenants.conf"), text, strlen(text));
		assert_int_equal(zns_tenant_find("web", 5, &t, &err), -EINVAL);
		assert_says(err, bad[i].says);
		assert_says(err, "/tenants.conf:3: ");
	}
	PUT(at(conf, "tenants.conf"), "name *\0 max-qos=5\n");
	assert_int_equal(zns_tenant_find("web", 5, &t, &err), -EINVAL);
	assert_says(err, "not a text file");
}

/* A system without machine id, as in many containers and new images, and without a file of ours.
 * 77: cannot be tried here. */
static int nameless(void)
{
	char first[ZNS_MACHINE_STR], again[ZNS_MACHINE_STR];

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return 77;
	if (!access("/etc/machine-id", F_OK) &&
	    mount("/dev/null", "/etc/machine-id", NULL, MS_BIND, NULL))
		return 77;
	if (zns_machine_id(first, NULL) || zns_machine_id(again, NULL))
		return 1;
	return strlen(first) != 32 || strcmp(first, again) ? 2 : 0;
}

static void machine_without_an_id(void **state)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(nameless());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("no mounts of its own\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

/* One that was handed over leads to its successor, is no device of its own, and can come back. */
static void successors(void **state)
{
	struct zns_registered *list, reg;
	size_t nr;

	assert_int_equal(zns_register_successor(uuid_a, uuid_b, NULL), -ENOENT);
	assert_int_equal(zns_register(uuid_a, at(dir, "a"), NULL), 0);
	assert_int_equal(zns_register(uuid_b, at(dir, "b"), NULL), 0);
	assert_int_equal(zns_register_successor(uuid_a, uuid_b, NULL), 0);
	assert_int_equal(zns_registered_by_uuid(uuid_a, &reg, NULL), 0);
	assert_string_equal(reg.path, at(dir, "b"));
	assert_memory_equal(reg.uuid, uuid_b, ZNS_UUID_LEN);
	assert_true(zns_is_store(uuid_a, &reg) && zns_is_store(uuid_b, &reg));
	assert_int_equal(zns_registered_list(&list, &nr, NULL), 0);
	assert_int_equal(nr, 1);
	assert_memory_equal(list[0].uuid, uuid_b, ZNS_UUID_LEN);
	free(list);
	assert_int_equal(zns_register_successor(uuid_b, uuid_a, NULL), -EINVAL);
	assert_int_equal(zns_register_successor(uuid_b, uuid_b, NULL), -EINVAL);
	assert_int_equal(zns_register(uuid_a, at(dir, "a"), NULL), 0);
	assert_int_equal(zns_register_successor(uuid_b, uuid_a, NULL), 0);
	assert_int_equal(zns_registered_by_uuid(uuid_b, &reg, NULL), 0);
	assert_string_equal(reg.path, at(dir, "a"));
	assert_int_equal(zns_unregister(uuid_b, NULL), 0);
	assert_int_equal(zns_registered_by_uuid(uuid_b, &reg, NULL), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(dirs),
		T(register_and_find),
		T(one_entry_per_path),
		T(damaged_entries),
		T(bad_paths),
		T(canonical),
		T(conf_get_set),
		T(conf_rejects),
		T(resolve),
		T(successors),
		T(parallel_sets),
		T(tenants),
		T(tenants_wrong),
		T(machine_without_an_id),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
