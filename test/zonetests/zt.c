/* SPDX-License-Identifier: GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include "zt.h"

bool zt_selftest;
size_t zt_size;
const char *zt_dir = ".";

static uint64_t digest = 1;
static sigset_t asked;

/* One word of the content: a finalizer of splitmix64 over seed and word number. */
static inline uint64_t word(uint64_t seed, uint64_t n)
{
	uint64_t z = seed * 0xd1342543de82ef95ull + n * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	return z ^ (z >> 27);
}

static void fold(uint64_t w)
{
	digest = (digest ^ w) * 0x9e3779b97f4a7c15ull;
	digest ^= digest >> 29;
}

void zt_init(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--selftest"))
			zt_selftest = true;
		else if (!strcmp(argv[i], "--dir") && i + 1 < argc)
			zt_dir = argv[++i];
		else if (!strcmp(argv[i], "--size") && i + 1 < argc)
			zt_size = ZT_MB(strtoul(argv[++i], NULL, 0));
		else {
			fprintf(stderr, "usage: %s [--selftest] [--dir DIR] [--size MB]\n",
				argv[0]);
			exit(2);
		}
	}
	sigemptyset(&asked);
	sigaddset(&asked, SIGTERM);
	sigaddset(&asked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &asked, NULL);
}

void zt_path(char out[256], const char *name)
{
	if (snprintf(out, 256, "%s/%s", zt_dir, name) >= 256)
		zt_die("path too long: %s", name);
}

/* One line to DIR/out in one write: lines of several processes do not mix. */
static void say(const char *kind, const char *fmt, va_list ap)
{
	char path[256], line[512], text[400];
	int fd;

	vsnprintf(text, sizeof(text), fmt, ap);
	int n = snprintf(line, sizeof(line), "%s%s\n", kind, text);
	snprintf(path, sizeof(path), "%s/out", zt_dir);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, line, n) != n)
		fprintf(stderr, "cannot write %s: %s", path, line);
	if (fd >= 0)
		close(fd);
}

#define SAY_AND_EXIT(kind, code)    \
	do {                        \
		va_list ap;         \
		va_start(ap, fmt);  \
		say(kind, fmt, ap); \
		va_end(ap);         \
		_exit(code);        \
	} while (0)

void zt_die(const char *fmt, ...)
{
	SAY_AND_EXIT("ERROR: ", 2);
}

void zt_skip(const char *fmt, ...)
{
	SAY_AND_EXIT("SKIP: ", 3);
}

void zt_fail(const char *fmt, ...)
{
	SAY_AND_EXIT("FAIL: ", 1);
}

__attribute__((format(printf, 1, 2))) static void say_pass(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("PASS ", fmt, ap);
	va_end(ap);
}

void zt_fill_at(void *p, size_t len, uint64_t seed, uint64_t pos)
{
	uint8_t *b = p;
	size_t i = 0;

	while (i < len) {
		uint64_t w = word(seed, (pos + i) / 8), in = (pos + i) % 8;
		size_t n = 8 - in < len - i ? 8 - in : len - i;

		memcpy(b + i, (uint8_t *)&w + in, n);
		i += n;
	}
}

void zt_check_at(const void *p, size_t len, uint64_t seed, uint64_t pos, const char *what)
{
	const uint8_t *b = p;
	size_t i = 0;

	while (i < len) {
		uint64_t w = word(seed, (pos + i) / 8), in = (pos + i) % 8, got = 0;
		size_t n = 8 - in < len - i ? 8 - in : len - i;

		memcpy(&got, b + i, n);
		fold(got);
		if (memcmp(b + i, (uint8_t *)&w + in, n))
			zt_fail("%s: wrong content at offset %zu (%p)", what, (size_t)(pos + i),
				(void *)(b + i));
		i += n;
	}
}

void zt_check_zero(const void *p, size_t len, const char *what)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < len; i++)
		if (b[i])
			zt_fail("%s: not zero at offset %zu", what, i);
	fold(len);
}

void zt_digest(const void *p, size_t len)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < len; i++)
		fold(b[i]);
}

void zt_flip(void *byte)
{
	if (zt_selftest)
		*(volatile uint8_t *)byte ^= 0x10;
}

void zt_flip_file(int fd, off_t off)
{
	uint8_t b;

	if (!zt_selftest)
		return;
	ZT_SYS(pread(fd, &b, 1, off));
	b ^= 0x10;
	ZT_SYS(pwrite(fd, &b, 1, off));
}

void *zt_mmap(size_t len)
{
	return zt_mmap_at(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void *zt_mmap_at(void *hint, size_t len, int prot, int flags, int fd, off_t off)
{
	void *p = mmap(hint, len, prot, flags, fd, off);

	if (p == MAP_FAILED)
		zt_die("mmap of %zu bytes: %m", len);
	return p;
}

const char *zt_perms(const void *p)
{
	static char perms[5];
	unsigned long from, to;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	if (!f)
		zt_die("/proc/self/maps: %m");
	perms[0] = 0;
	while (fgets(line, sizeof(line), f)) {
		char now[5];

		if (sscanf(line, "%lx-%lx %4s", &from, &to, now) == 3 && (unsigned long)p >= from &&
		    (unsigned long)p < to)
			memcpy(perms, now, sizeof(now));
	}
	fclose(f);
	return perms;
}

void zt_write_all(int fd, const void *p, size_t len)
{
	for (size_t done = 0; done < len;)
		done += ZT_SYS(write(fd, (const char *)p + done, len - done));
}

void zt_read_all(int fd, void *p, size_t len, const char *what)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, (char *)p + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		ZT_CHECK(n >= 0, "%s: read: %m", what);
		ZT_CHECK(n > 0, "%s: ends after %zu of %zu bytes", what, done, len);
		done += n;
	}
}

pid_t zt_fork(void (*setup)(int n), void (*check)(int n), int n)
{
	int p[2];
	char c = 0;

	ZT_SYS(pipe2(p, O_CLOEXEC));
	pid_t pid = ZT_SYS(fork());
	if (!pid) {
		close(p[0]);
		if (setup)
			setup(n);
		ZT_SYS(write(p[1], "r", 1));
		close(p[1]);
		zt_wait();
		check(n);
		_exit(0);
	}
	close(p[1]);
	if (read(p[0], &c, 1) != 1)
		zt_die("child %d did not get ready", n);
	close(p[0]);
	return pid;
}

void zt_join(pid_t pid)
{
	int status;

	ZT_CHECK(!kill(pid, SIGTERM), "child %d is gone: %m", pid);
	ZT_CHECK(waitpid(pid, &status, 0) == pid, "child %d cannot be waited for: %m", pid);
	ZT_CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "child %d ended with status %#x", pid,
		 status);
}

void zt_ready(void (*check)(void))
{
	char path[256], tmp[256];
	FILE *f;

	digest = 1;
	if (check)
		check();
	zt_path(path, "ready");
	zt_path(tmp, "ready.tmp");
	f = fopen(tmp, "we");
	if (!f ||
	    fprintf(f, "READY %d %016llx\n", getpid(), check ? (unsigned long long)digest : 0ull) <
		    0 ||
	    fclose(f) || rename(tmp, path))
		zt_die("%s: %m", path);
}

int zt_wait(void)
{
	int sig;

	do {
		sig = sigwaitinfo(&asked, NULL);
	} while (sig < 0 && errno == EINTR);
	return sig;
}

bool zt_asked(void)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, SIGTERM) || sigismember(&pending, SIGUSR1);
}

static void verdict(void (*check)(void))
{
	digest = 1;
	check();
	say_pass("%016llx", (unsigned long long)digest);
}

void zt_finish(void (*check)(void))
{
	verdict(check);
	_exit(0);
}

void zt_serve(void (*check)(void))
{
	while (zt_wait() != SIGTERM)
		verdict(check);
	zt_finish(check);
}
