/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZT_H
#define ZT_H
/*
 * What every test program shares. A program builds its state, calls zt_ready(), and then
 * zt_serve(): there it sleeps until the runner's signal and checks its own state, before or after a
 * dump and restore. SIGTERM  check, write the verdict to DIR/out, exit SIGUSR1  check, write the
 * verdict, go on waiting (for checks that do not consume what they check) Contents depend on seed
 * and position, so a page that is lost, stale or in another's place is found.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define ZT_PAGE 4096ul
#define ZT_MB(x) ((size_t)(x) << 20)

extern bool zt_selftest; /* --selftest: spoil one byte after setup; the check must then say FAIL */
extern size_t zt_size; /* --size MB, in bytes; 0 if not given */
/* --dir: where ready and out go; also the place for the test's own files */
extern const char *zt_dir;

void zt_init(int argc, char **argv);

/* Setup failed: the test could not begin. Skip: this machine cannot do it. */
__attribute__((noreturn, format(printf, 1, 2))) void zt_die(const char *fmt, ...);
__attribute__((noreturn, format(printf, 1, 2))) void zt_skip(const char *fmt, ...);
/* The state is not what it was. */
__attribute__((noreturn, format(printf, 1, 2))) void zt_fail(const char *fmt, ...);

#define ZT_SYS(expr)                                                        \
	({                                                                  \
		__typeof__(expr) zt_r_ = (expr);                            \
		if (zt_r_ == (__typeof__(expr))-1)                          \
			zt_die("%s:%d: %s: %m", __FILE__, __LINE__, #expr); \
		zt_r_;                                                      \
	})
#define ZT_CHECK(cond, ...)                   \
	do {                                  \
		if (!(cond))                  \
			zt_fail(__VA_ARGS__); \
	} while (0)

/* Position-dependent contents; @pos is the position of @p in its object (0 for a whole one). */
void zt_fill_at(void *p, size_t len, uint64_t seed, uint64_t pos);
void zt_check_at(const void *p, size_t len, uint64_t seed, uint64_t pos, const char *what);
#define zt_fill(p, len, seed) zt_fill_at(p, len, seed, 0)
#define zt_check(p, len, seed, what) zt_check_at(p, len, seed, 0, what)
void zt_check_zero(const void *p, size_t len, const char *what);
/* Put bytes into the digest that ready and verdict carry; zt_check* do it for what they check. */
void zt_digest(const void *p, size_t len);

/* Has no effect without --selftest. */
void zt_flip(void *byte);
void zt_flip_file(int fd, off_t off);

void *zt_mmap(size_t len); /* private anonymous, read-write */
void *zt_mmap_at(void *hint, size_t len, int prot, int flags, int fd, off_t off);
/* "rw-p" of the mapping at @p, from /proc/self/maps; "" if nothing is mapped. */
const char *zt_perms(const void *p);
void zt_path(char out[256], const char *name); /* DIR/name */
void zt_write_all(int fd, const void *p, size_t len);
void zt_read_all(int fd, void *p, size_t len, const char *what); /* a short read is a FAIL */

/*
 * A child that sets itself up before the call returns, then sleeps; zt_join() makes it check itself
 * and fails if that fails. @setup may be NULL.
 */
pid_t zt_fork(void (*setup)(int n), void (*check)(int n), int n);
void zt_join(pid_t pid);

/* Check once (NULL: the check consumes, leave it out), then tell the runner that it may dump. */
void zt_ready(void (*check)(void));
int zt_wait(void); /* waits for the runner's signal; returns it */
bool zt_asked(void); /* has the signal come? for programs that do not sleep */
__attribute__((noreturn)) void zt_finish(void (*check)(void)); /* check, verdict, exit */
__attribute__((noreturn)) void zt_serve(void (*check)(void));

#endif
