/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_ERR_H
#define ZNS_ERR_H
/*
 * Errors of libzns: every function that can fail returns a negative errno and,
 * where it takes a `struct zns_err *`, leaves one line there that says what is
 * wrong and what to do. The library never prints and never exits; the program
 * (znsctl, znsd, the helper, criu) shows the line.
 *
 * The object is plain storage owned by the caller: no allocation, nothing to
 * free, may be NULL wherever it is a parameter. Not thread-safe: one per thread.
 */
#include <errno.h>
#include <stdarg.h>

#define ZNS_ERR_MAX 512

struct zns_err {
	int code; /* negative errno; 0 if nothing failed */
	char msg[ZNS_ERR_MAX]; /* one line, no newline at the end */
};

#define ZNS_ERR_INIT      \
	{                 \
		.code = 0 \
	}

/* Records an error and returns @code (a negative errno). Overwrites an earlier error. */
int zns_fail(struct zns_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Like zns_fail, with ": strerror(-code)" appended. */
int zns_fail_sys(struct zns_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "context: " in front of the recorded text; returns err->code, or -EIO if @err is NULL. */
int zns_wrap(struct zns_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
