/* SPDX-License-Identifier: GPL-2.0-only */
/* zns/base without the configuration: errors, sizes, times, UUIDs, hashes, files, programs. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <dirent.h>
#include <cmocka.h>

#include "../../zns/base/hash_priv.h"
#include "zns/context.h"
#include "zns/err.h"
#include "zns/grow.h"
#include "zns/process.h"
#include "zns/util.h"

static char dir[128];

static const char *in_dir(const char *name)
{
	static char path[4][256];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, 256, "%s/%s", dir, name);
	return p;
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static int make_dir(void **state)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/zns-base-XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
	char cmd[160];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd);
}

static void err_records(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;

	assert_int_equal(zns_fail(&err, -ENOSPC, "zone %d", 7), -ENOSPC);
	assert_int_equal(err.code, -ENOSPC);
	assert_string_equal(err.msg, "zone 7");
	assert_int_equal(zns_fail_sys(&err, -ENOENT, "open %s", "x"), -ENOENT);
	assert_string_equal(err.msg, "open x: No such file or directory");
	assert_int_equal(zns_wrap(&err, "dump %d", 3), -ENOENT);
	assert_string_equal(err.msg, "dump 3: open x: No such file or directory");
	assert_int_equal(zns_fail(&err, EINVAL, "x"), -EINVAL);
	assert_int_equal(zns_fail(&err, 0, "x"), -EIO);
}

static void err_null_is_fine(void **state)
{
	assert_int_equal(zns_fail(NULL, -EPERM, "x"), -EPERM);
	assert_int_equal(zns_fail_sys(NULL, -EPERM, "x"), -EPERM);
	assert_int_equal(zns_wrap(NULL, "x"), -EIO);
}

static void err_stays_one_short_line(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char big[2000];

	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	zns_fail(&err, -EIO, "one\ntwo\033[31m");
	assert_string_equal(err.msg, "one two [31m");
	zns_fail(&err, -EIO, "%s", big);
	assert_int_equal(strlen(err.msg), ZNS_ERR_MAX - 1);
	assert_int_equal(zns_wrap(&err, "%s", big), -EIO);
	assert_int_equal(strlen(err.msg), ZNS_ERR_MAX - 1);
	zns_fail_sys(&err, -EIO, "%s", big);
	assert_int_equal(strlen(err.msg), ZNS_ERR_MAX - 1);
	/* The reason is kept, since it helps; of a name the beginning is enough. */
	assert_string_equal(err.msg + strlen(err.msg) - strlen("...: Input/output error"),
			    "...: Input/output error");
	zns_fail(&err, -EIO, "inner");
	zns_wrap(&err, "%s", big);
	assert_string_equal(err.msg + strlen(err.msg) - strlen("...: inner"), "...: inner");
	assert_int_equal(strlen(err.msg), ZNS_ERR_MAX - 1);
	zns_fail(&err, -EIO, "%s", big);
	zns_wrap(&err, "reading zone 7");
	assert_int_equal(strncmp(err.msg, "reading zone 7: ", 16), 0);
	memset(big, 'x', sizeof(big) - 1);
	for (size_t i = 1; i + 1 < sizeof(big); i += 2)
		memcpy(big + i, "\xc3\xa9", 2);
	zns_fail(&err, -EIO, "%s", big);
	assert_int_equal((unsigned char)err.msg[strlen(err.msg) - 1], 0xa9);
	zns_fail(&err, -EIO, "x%s", big);
	assert_int_equal((unsigned char)err.msg[strlen(err.msg) - 1], 0xa9);
	/* the old text as an argument of the new one */
	zns_fail(&err, -EIO, "inner");
	zns_fail(&err, -EAGAIN, "outer: %s", err.msg);
	assert_string_equal(err.msg, "outer: inner");
	struct zns_err none = ZNS_ERR_INIT;
	assert_int_equal(zns_wrap(&none, "ctx"), -EIO);
}

static void size_accepts(void **state)
{
	static const struct {
		const char *s;
		uint64_t v;
	} ok[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "4096", 4096 },
		{ "64K", KIB(64) },
		{ "4M", MIB(4) },
		{ "2G", GIB(2) },
		{ "1T", GIB(1024) },
		{ "64k", KIB(64) },
		{ "007", 7 },
		{ "18446744073709551615", UINT64_MAX },
		{ "16777215T", UINT64_C(16777215) << 40 },
		{ "64MiB", MIB(64) },
		{ "64 MiB", MIB(64) },
		{ "64.0 MiB", MIB(64) },
		{ "4 M", MIB(4) },
		{ "1.5G", MIB(1536) },
		{ "0.3 KiB", 307 },
		{ "100 B", 100 },
		{ "12B", 12 },
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(ok); i++) {
		uint64_t v = 99;

		assert_int_equal(zns_parse_size(ok[i].s, &v), 0);
		assert_true(v == ok[i].v);
	}
}

/* A size that we print can be typed in again. */
static void size_reads_what_is_printed(void **state)
{
	static const uint64_t some[] = { 0, 1023, 1024, 1536, MIB(64), GIB(4), GIB(1024) };
	char text[32];
	uint64_t v;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(some); i++) {
		assert_int_equal(zns_parse_size(zns_format_size(some[i], text, sizeof(text)), &v),
				 0);
		assert_true(v == some[i]);
	}
}

static void size_rejects(void **state)
{
	static const char *const bad[] = { "",     " ",       "K",     "-1",   "+1",     " 1",
					   "1 ",   "1KB",     "1Kib",  "0x10", "1K1",    "1P",
					   "\n",   "1\n",     "1e3",   "1.5",  "1.0",    "1.G",
					   "1. G", "1.2345G", "1.5 B", "4  M", "4 MiB ", "iB" };
	static const char *const range[] = { "18446744073709551616", "16777216T",
					     "99999999999999999999999", "18014398509481984K" };
	uint64_t v = 99;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++)
		assert_int_equal(zns_parse_size(bad[i], &v), -EINVAL);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(range); i++)
		assert_int_equal(zns_parse_size(range[i], &v), -ERANGE);
	assert_int_equal(zns_parse_size(NULL, &v), -EINVAL);
	assert_true(v == 99);
}

static void mibps(void **state)
{
	static const struct {
		const char *s;
		uint32_t v;
	} ok[] = {
		{ "500", 500 },
		{ "500MiB/s", 500 },
		{ "2GiB/s", 2048 },
		{ "512KiB/s", 1 },
		{ "1024KiB/s", 1 },
		{ "1025KiB/s", 2 },
		{ "4294967295", UINT32_MAX },
		{ "1KiB/s", 1 },
	};
	static const char *const bad[] = { "",      "x",    "-5",     "5MB/s",    "5 MiB/s",
					   "MiB/s", "5MiB", "5mib/s", "1.5GiB/s", "5MiB/sx" };
	static const char *const range[] = { "0",
					     "0MiB/s",
					     "4294967296",
					     "4194304GiB/s",
					     "99999999999999999999",
					     "18446744073709551615GiB/s" };
	uint32_t v;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(ok); i++) {
		v = 0;
		assert_int_equal(zns_parse_mibps(ok[i].s, &v), 0);
		assert_int_equal(v, ok[i].v);
	}
	v = 99;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++)
		assert_int_equal(zns_parse_mibps(bad[i], &v), -EINVAL);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(range); i++)
		assert_int_equal(zns_parse_mibps(range[i], &v), -ERANGE);
	assert_int_equal(v, 99);
}

static void format_size(void **state)
{
	static const struct {
		uint64_t v;
		const char *s;
	} ok[] = {
		{ 0, "0 B" },          { 1023, "1023 B" },         { 1024, "1.0 KiB" },
		{ 1536, "1.5 KiB" },   { MIB(447), "447.0 MiB" },  { MIB(1) - 1, "1.0 MiB" },
		{ GIB(4), "4.0 GiB" }, { UINT64_MAX, "16.0 EiB" }, { GIB(1024) - 1, "1.0 TiB" },
	};
	char buf[16];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(ok); i++)
		assert_string_equal(zns_format_size(ok[i].v, buf, sizeof(buf)), ok[i].s);
	assert_string_equal(zns_format_size(MIB(447), buf, 6), "447.0");
}

static void times(void **state)
{
	char buf[32];
	uint64_t a, b;

	assert_string_equal(zns_format_time(0, buf, sizeof(buf)), "1970-01-01T00:00:00Z");
	assert_string_equal(zns_format_time(INT64_C(1795216020999999999), buf, sizeof(buf)),
			    "2026-11-20T23:07:00Z");
	assert_string_equal(zns_format_time(-1, buf, sizeof(buf)), "1969-12-31T23:59:59Z");
	assert_int_equal(strlen(zns_format_time(INT64_MAX, buf, sizeof(buf))), 20);
	a = zns_mono_ns();
	b = zns_mono_ns();
	assert_true(b >= a);
	assert_true(zns_now_ns() > INT64_C(1600000000000000000));
	assert_true(zns_now_after(0) > INT64_C(1600000000000000000));
	assert_true(zns_now_after(INT64_MAX - 5) == INT64_MAX - 4);
	assert_true(zns_now_after(INT64_MAX) == INT64_MAX);
}

static void uuids(void **state)
{
	static const char text[] = "123e4567-e89b-42d3-a456-426614174000";
	static const char *const bad[] = { "",
					   "123e4567",
					   "123e4567-e89b-42d3-a456-42661417400",
					   "123e4567-e89b-42d3-a456-4266141740000",
					   "123e4567-e89b-42d3-a456-42661417400g",
					   "123e4567ee89b-42d3-a456-426614174000",
					   "{23e4567-e89b-42d3-a456-426614174000",
					   "123e4567-e89b-42d3-a456 426614174000",
					   " 23e4567-e89b-42d3-a456-426614174000",
					   "-23e4567-e89b-42d3-a456-426614174000" };
	uint8_t a[ZNS_UUID_LEN], b[ZNS_UUID_LEN];
	char s[ZNS_UUID_STR];

	assert_int_equal(zns_uuid_parse(text, a), 0);
	assert_int_equal(a[0], 0x12);
	assert_int_equal(a[15], 0x00);
	assert_string_equal(zns_uuid_format(a, s), text);
	assert_int_equal(zns_uuid_parse("123E4567-E89B-42D3-A456-426614174000", b), 0);
	assert_memory_equal(a, b, sizeof(a));
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++)
		assert_int_equal(zns_uuid_parse(bad[i], b), -EINVAL);
	assert_int_equal(zns_uuid_parse(NULL, b), -EINVAL);
	assert_memory_equal(a, b, sizeof(a));
	assert_int_equal(zns_uuid_generate(a), 0);
	assert_int_equal(zns_uuid_generate(b), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	zns_uuid_format(a, s);
	assert_int_equal(s[14], '4');
	assert_non_null(strchr("89ab", s[19]));
}

/* The hash of a whole unit, and of each piece, as the library computes them. */
static void same_hashes(uint64_t (*whole)(const void *, size_t),
			uint64_t (*pieces)(const void *, size_t, size_t, uint64_t *))
{
	static uint8_t buf[300000];
	uint64_t sum[5];

	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i * 131 + i / 777);
	for (size_t len = 1; len <= sizeof(buf); len += 1 + len / 3) {
		size_t nr = 0;

		assert_true(whole(buf, len) == zns_hash_seeded(buf, len, 0));
		assert_true(pieces(buf, len, 65536, sum) == zns_hash_seeded(buf, len, 0));
		for (size_t at = 0; at < len; at += 65536, nr++)
			assert_true(sum[nr] ==
				    zns_hash_seeded(buf + at, zns_min((size_t)65536, len - at), 0));
	}
}

static void hashes(void **state)
{
	/* XXH3 of nothing, from its specification: the on-device format depends on it */
	assert_true(zns_hash("", 0) == UINT64_C(0x2d06800538d394c2));
	assert_true(zns_hash("a", 1) != zns_hash("b", 1));
	/* the plain function and the processor's own version give the same */
	for (size_t len = 0; len < 3000; len += 1 + len / 50) {
		uint8_t buf[3000];

		for (size_t i = 0; i < len; i++)
			buf[i] = (uint8_t)(i * 131 + len);
		assert_true(zns_hash(buf, len) == zns_hash_seeded(buf, len, 0));
	}
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		same_hashes(zns_hash_avx2, zns_hash_pieces_avx2);
	if (__builtin_cpu_supports("avx512f"))
		same_hashes(zns_hash_avx512, zns_hash_pieces_avx512);
#endif
	same_hashes(zns_hash, zns_hash_pieces);
	assert_true(zns_hash_seeded("a", 1, 0) == zns_hash("a", 1));
	assert_true(zns_hash_seeded("a", 1, 1) != zns_hash("a", 1));
}

/* A program that was started without standard descriptors must not print into its device. */
static void std_fds(void **state)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		int fd;

		close(0);
		close(1);
		close(2);
		if (zns_std_fds())
			_exit(1);
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		/* A failed write to standard output must be noticed. */
		_exit(fd != 3 || write(1, "x", 1) >= 0 || errno != EBADF || fcntl(2, F_GETFD));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(zns_std_fds(), 0);
}

static void whole_transfers(void **state)
{
	cleanup_close int fd = open(in_dir("t"), O_RDWR | O_CREAT | O_TRUNC, 0600);
	char buf[8];
	int pipes[2];

	assert_int_equal(zns_pwrite_all(fd, "abcdef", 6, 0), 0);
	assert_int_equal(zns_pread_all(fd, buf, 6, 0), 0);
	assert_memory_equal(buf, "abcdef", 6);
	assert_int_equal(zns_pread_all(fd, buf, 7, 0), -ENODATA);
	assert_int_equal(zns_pread_all(fd, buf, 0, 100), 0);
	assert_int_equal(zns_pread_all(-1, buf, 1, 0), -EBADF);
	assert_int_equal(zns_pwrite_all(-1, buf, 1, 0), -EBADF);
	assert_int_equal(zns_write_all(-1, buf, 1), -EBADF);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(zns_write_all(pipes[1], "xyz", 3), 0);
	assert_int_equal(read(pipes[0], buf, 8), 3);
	assert_int_equal(zns_pwrite_all(pipes[1], "xyz", 3, 0), -ESPIPE);
	close(pipes[0]);
	close(pipes[1]);
}

static void read_file(void **state)
{
	cleanup_free uint8_t *buf = NULL;
	size_t len = 77;

	put(in_dir("f"), "hello");
	assert_int_equal(zns_read_file(AT_FDCWD, in_dir("f"), 5, &buf, &len), 0);
	assert_int_equal(len, 5);
	assert_string_equal((char *)buf, "hello");
	free(buf);
	buf = NULL;
	assert_int_equal(zns_read_file(AT_FDCWD, in_dir("f"), 4, &buf, &len), -EFBIG);
	assert_int_equal(zns_read_file(AT_FDCWD, in_dir("none"), 4, &buf, &len), -ENOENT);
	assert_int_equal(zns_read_file(AT_FDCWD, dir, 4, &buf, &len), -EISDIR);
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	assert_int_equal(zns_read_file(AT_FDCWD, in_dir("fifo"), 4, &buf, &len), -EINVAL);
	assert_null(buf);
	/* size 0 according to stat, but with content */
	assert_int_equal(zns_read_file(AT_FDCWD, "/proc/self/status", 1 << 20, &buf, &len), 0);
	assert_true(len > 100);
	assert_int_equal(strlen((char *)buf), len);
	free(buf);
	buf = NULL;
	assert_int_equal(zns_read_file(AT_FDCWD, "/proc/self/status", 100, &buf, &len), -EFBIG);
	put(in_dir("empty"), "");
	assert_int_equal(zns_read_file(AT_FDCWD, in_dir("empty"), 0, &buf, &len), 0);
	assert_int_equal(len, 0);
	assert_int_equal(buf[0], 0);
}

static size_t count_names(void)
{
	DIR *d = opendir(dir);
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void replace_file(void **state)
{
	cleanup_close int dfd = open(dir, O_RDONLY | O_DIRECTORY);
	cleanup_free uint8_t *buf = NULL;
	struct stat st;
	size_t len, names;
	mode_t old;

	old = umask(0077);
	assert_int_equal(zns_replace_file(dfd, "r", "one", 3, 0644), 0);
	umask(old);
	assert_int_equal(fstatat(dfd, "r", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	names = count_names();
	assert_int_equal(zns_replace_file(AT_FDCWD, in_dir("r"), "three", 5, 0600), 0);
	assert_int_equal(zns_read_file(dfd, "r", 100, &buf, &len), 0);
	assert_string_equal((char *)buf, "three");
	assert_int_equal(zns_replace_file(AT_FDCWD, in_dir("no/such"), "x", 1, 0600), -ENOENT);
	assert_int_equal(zns_replace_file(AT_FDCWD, in_dir(""), "x", 1, 0600), -EINVAL);
	assert_int_equal(zns_replace_file(dfd, "..", "x", 1, 0600), -EINVAL);
	assert_int_equal(mkdirat(dfd, "adir", 0700), 0);
	assert_int_equal(zns_replace_file(dfd, "adir", "x", 1, 0600), -EISDIR);
	unlinkat(dfd, "adir", AT_REMOVEDIR);
	/* a symlink is replaced, not followed */
	assert_int_equal(symlinkat("r", dfd, "link"), 0);
	assert_int_equal(zns_replace_file(dfd, "link", "new", 3, 0600), 0);
	assert_int_equal(fstatat(dfd, "link", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISREG(st.st_mode));
	unlinkat(dfd, "link", 0);
	/* no temporary file is left, whatever failed */
	assert_int_equal(count_names(), names);
}

static void sync_parent(void **state)
{
	assert_int_equal(zns_sync_parent("no-such-file-needed"), 0);
	assert_int_equal(zns_sync_parent("/tmp/x"), 0);
	assert_int_equal(zns_sync_parent("/tmp/"), 0);
	assert_int_equal(zns_sync_parent("/"), 0);
	assert_int_equal(zns_sync_parent("/none/x/"), -ENOENT);
	assert_int_equal(zns_sync_parent("/none/x/y"), -ENOENT);
}

static void numbers_and_durations(void **state)
{
	static const struct {
		const char *text;
		int rc;
		uint64_t s;
	} durations[] = {
		{ "0", 0, 0 },
		{ "90", 0, 90 },
		{ "90s", 0, 90 },
		{ "15m", 0, 900 },
		{ "12h", 0, 43200 },
		{ "30d", 0, 2592000 },
		{ "2w", 0, 1209600 },
		{ "9223372036", 0, 9223372036ull },
		{ "9223372037", -ERANGE, 7 },
		{ "15251w", -ERANGE, 7 },
		{ "99999999999999999999", -ERANGE, 7 },
		{ "", -EINVAL, 7 },
		{ "-1", -EINVAL, 7 },
		{ " 1", -EINVAL, 7 },
		{ "1 ", -EINVAL, 7 },
		{ "s", -EINVAL, 7 },
		{ "1ms", -EINVAL, 7 },
		{ "1M", -EINVAL, 7 },
		{ "1y", -EINVAL, 7 },
		{ "1.5h", -EINVAL, 7 },
		{ "0x10", -EINVAL, 7 },
	};
	char text[24];
	uint64_t v = 7;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(durations); i++) {
		v = 7;
		if (zns_parse_duration(durations[i].text, &v) != durations[i].rc ||
		    v != durations[i].s)
			fail_msg("\"%s\": %llu", durations[i].text, (unsigned long long)v);
	}
	assert_string_equal(zns_format_duration(5400, text, sizeof(text)), "90m");
	assert_string_equal(zns_format_duration(1209600, text, sizeof(text)), "2w");
	assert_string_equal(zns_format_duration(61, text, sizeof(text)), "61s");
	v = 7;
	assert_int_equal(zns_parse_number("10", 1, 10, &v), 0);
	assert_int_equal(v, 10);
	assert_int_equal(zns_parse_number("11", 1, 10, &v), -ERANGE);
	assert_int_equal(zns_parse_number("0", 1, 10, &v), -ERANGE);
	assert_int_equal(zns_parse_number("5s", 1, 10, &v), -EINVAL);
	assert_int_equal(zns_parse_number(NULL, 1, 10, &v), -EINVAL);
	assert_int_equal(v, 10);
}

static void grow(void **state)
{
	struct {
		uint64_t *v;
		size_t nr, max;
	} l = { 0 };
	struct {
		uint32_t *v;
		uint8_t nr, max;
	} small = { 0 };
	uint16_t *exact = NULL;

	for (uint64_t i = 0; i < 1000; i++) {
		assert_int_equal(zns_grow(l.v, l.nr, l.max), 0);
		l.v[l.nr++] = i;
	}
	assert_true(l.max >= 1000 && l.max <= 2000);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(l.v[i], i);
	assert_int_equal(zns_grow_to(l.v, 5000, l.max), 0);
	assert_int_equal(l.max, 5000);
	/* More bytes than there is memory, and more than a size can hold: the old buffer stays. */
	assert_int_equal(zns_grow_to(l.v, SIZE_MAX / 2, l.max), -ENOMEM);
	assert_int_equal(zns_grow(l.v, SIZE_MAX, l.max), -ENOMEM);
	assert_int_equal(l.max, 5000);
	assert_int_equal(l.v[999], 999);
	/* more elements than the count's type can hold */
	for (; !zns_grow(small.v, small.nr, small.max); small.nr++)
		small.v[small.nr] = small.nr;
	assert_int_equal(small.nr, 255);
	assert_int_equal(small.max, 255);
	for (uint16_t i = 0; i < 9; i++) {
		assert_int_equal(zns_grow_by_one(exact, i), 0);
		exact[i] = i;
	}
	assert_int_equal(zns_grow_by_one(exact, SIZE_MAX), -ENOMEM);
	assert_int_equal(exact[8], 8);
	free(l.v);
	free(small.v);
	free(exact);
}

static void find_program(void **state)
{
	char out[512];

	assert_int_equal(mkdir(in_dir("libexec"), 0700), 0);
	put(in_dir("libexec/znsd-test"), "#!/bin/sh\n");
	setenv("ZNS_LIBEXEC", in_dir("libexec"), 1);
	assert_int_equal(zns_find_program("znsd-test", out, sizeof(out)), -ENOENT);
	assert_int_equal(chmod(in_dir("libexec/znsd-test"), 0700), 0);
	assert_int_equal(zns_find_program("znsd-test", out, sizeof(out)), 0);
	assert_string_equal(out, in_dir("libexec/znsd-test"));
	assert_int_equal(zns_find_program("znsd-test", out, 4), -ENOENT);
	assert_int_equal(zns_find_program("../libexec/znsd-test", out, sizeof(out)), -ENOENT);
	assert_int_equal(zns_find_program("", out, sizeof(out)), -ENOENT);
	unsetenv("ZNS_LIBEXEC");
	assert_int_equal(zns_find_program("znsd-test", out, sizeof(out)), -ENOENT);
	/* beside the running binary */
	assert_int_equal(zns_find_program(program_invocation_short_name, out, sizeof(out)), 0);
}

/* Characters that a terminal would obey are replaced, everything else is unchanged. */
static void foreign_text(void **state)
{
	static const char *const good[] = { "",
					    "plain",
					    "a b~",
					    "gr\xc3\xbc\xc3\x9f",
					    "\xe6\x97\xa5\xe6\x9c\xac",
					    "\xf0\x9f\x90\xa7" };
	static const struct {
		const char *in, *clean, *escaped;
	} bad[] = {
		{ "a\x1b[31m", "a [31m", "a\\x1b[31m" },
		{ "a\nb\tc", "a b c", "a\\x0ab\\x09c" },
		{ "\x7f", " ", "\\x7f" },
		{ "\xc2\x9b", "??", "\\xc2\\x9b" },
		{ "\x9b", "?", "\\x9b" },
		{ "\xe2\x80\xae", "???", "\\xe2\\x80\\xae" },
		{ "\xc0\xaf", "??", "\\xc0\\xaf" },
		{ "\xed\xa0\x80", "???", "\\xed\\xa0\\x80" },
		{ "ab\xe2\x82", "ab??", "ab\\xe2\\x82" },
		{ "\xf4\x90\x80\x80", "????", "\\xf4\\x90\\x80\\x80" },
		{ "\xe0\x80\x9b", "???", "\\xe0\\x80\\x9b" },
	};
	char buf[64];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(good); i++) {
		snprintf(buf, sizeof(buf), "%s", good[i]);
		assert_true(zns_is_printable(good[i]));
		assert_string_equal(zns_clean(buf), good[i]);
		assert_string_equal(zns_escape(good[i], buf, sizeof(buf)), good[i]);
	}
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++) {
		snprintf(buf, sizeof(buf), "%s", bad[i].in);
		assert_false(zns_is_printable(bad[i].in));
		assert_string_equal(zns_clean(buf), bad[i].clean);
		assert_string_equal(zns_escape(bad[i].in, buf, sizeof(buf)), bad[i].escaped);
	}
	assert_string_equal(zns_escape("a\\b", buf, sizeof(buf)), "a\\\\b");
	/* What does not fit is left out, never cut in the middle of a character. */
	for (size_t len = 1; len < 12; len++)
		assert_true(strlen(zns_escape("\x1b\xf0\x9f\x90\xa7z", buf, len)) < len);
}

/* Whoever holds a context's lock file has its zones: the file must be the requested one, and our
 * own. */
static void context_files(void **state)
{
	struct zns_context c = { .id = "context-aaaaaaa", .device = "device-aaaaaaaa" }, got;
	static const uint8_t other[ZNS_UUID_LEN] = "other-bbbbbbbbb";
	char path[4096], as_other[4096], on_other[4096];
	struct zns_err err = ZNS_ERR_INIT;
	int fd;

	setenv("ZNS_RUN", in_dir("run"), 1);
	strcpy(c.container, "web");
	c.encrypted = true;
	assert_int_equal(zns_context_create(&c, 9, &fd, &err), 0);
	close(fd);
	assert_int_equal(zns_context_open(c.device, c.id, 9, &got, &fd, &err), 0);
	assert_memory_equal(got.id, c.id, ZNS_UUID_LEN);
	assert_memory_equal(got.device, c.device, ZNS_UUID_LEN);
	assert_string_equal(got.container, "web");
	assert_true(got.encrypted);
	close(fd);
	assert_int_equal(zns_context_open(c.device, other, 9, &got, &fd, &err), -ESTALE);
	assert_int_equal(zns_context_open(other, c.id, 9, &got, &fd, &err), -ESTALE);
	assert_int_equal(zns_context_open(c.device, c.id, 8, &got, &fd, &err), -EBADMSG);
	/* under the name of another context, and of another device */
	assert_int_equal(zns_context_path(c.device, c.id, path, sizeof(path)), 0);
	assert_int_equal(zns_context_path(c.device, other, as_other, sizeof(as_other)), 0);
	assert_int_equal(zns_context_path(other, c.id, on_other, sizeof(on_other)), 0);
	assert_int_equal(link(path, as_other) | link(path, on_other), 0);
	assert_int_equal(zns_context_open(c.device, other, 9, &got, &fd, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "another context"));
	assert_int_equal(zns_context_open(other, c.id, 9, &got, &fd, &err), -EBADMSG);
	/* a file that others may write, one that is cut short, none at all */
	assert_int_equal(chmod(path, 0620), 0);
	assert_int_equal(zns_context_open(c.device, c.id, 9, &got, &fd, &err), -EPERM);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(truncate(path, ZNS_CONTEXT_HEAD), 0);
	assert_int_equal(zns_context_open(c.device, c.id, 0, &got, &fd, &err), -EBADMSG);
	assert_int_equal(unlink(path) | mkfifo(path, 0600), 0);
	assert_int_equal(zns_context_open(c.device, c.id, 9, &got, &fd, &err), -EPERM);
	assert_int_equal(unlink(path) | symlink(as_other, path), 0);
	assert_int_equal(zns_context_open(c.device, c.id, 9, &got, &fd, &err), -ELOOP);
	unsetenv("ZNS_RUN");
}

#define GENERATIONS 80

/* A chain of processes, each the parent of the next; the last one tells @ready. */
static void __attribute__((noreturn)) generation(int nr, int ready)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (nr > 1 && !fork())
		generation(nr - 1, ready);
	if (nr == 1 && write(ready, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* The processes began at about the same time, so the sum of their start times counts them. */
static void tree_of_processes(void **state)
{
	int ready[2];
	uint64_t began;
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid)
		generation(GENERATIONS, ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	began = zns_process_stat(pid, ZNS_PROCESS_BEGAN);
	assert_int_equal(zns_process_tree(pid, ZNS_PROCESS_BEGAN) / began, 64);
	assert_true(zns_process_tree(pid, ZNS_PROCESS_PAGES) >
		    zns_process_stat(pid, ZNS_PROCESS_PAGES));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(zns_process_tree(pid, ZNS_PROCESS_PAGES), 0);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(err_records),
		cmocka_unit_test(err_null_is_fine),
		cmocka_unit_test(err_stays_one_short_line),
		cmocka_unit_test(foreign_text),
		cmocka_unit_test(size_accepts),
		cmocka_unit_test(size_rejects),
		cmocka_unit_test(size_reads_what_is_printed),
		cmocka_unit_test(mibps),
		cmocka_unit_test(format_size),
		cmocka_unit_test(times),
		cmocka_unit_test(uuids),
		cmocka_unit_test(hashes),
		cmocka_unit_test(std_fds),
		cmocka_unit_test(whole_transfers),
		cmocka_unit_test(read_file),
		cmocka_unit_test(replace_file),
		cmocka_unit_test(sync_parent),
		cmocka_unit_test(grow),
		cmocka_unit_test(numbers_and_durations),
		cmocka_unit_test(find_program),
		cmocka_unit_test(tree_of_processes),
		cmocka_unit_test(context_files),
	};

	return cmocka_run_group_tests_name("base", tests, make_dir, drop_dir);
}
