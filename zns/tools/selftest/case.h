/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CONFORM_CASE_H
#define CONFORM_CASE_H
/*
 * For test cases. A case gets empty zones, and states what must be true by the macros below. The
 * first failure ends the case.
 */
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conform.h"
#include "zns/util.h"

#define CONFORM_PEERS 8

struct conform {
	const char *spec;
	const char *twin; /* another device node of the same device, or NULL */
	struct zns_dev *d;
	uint32_t nr; /* number of sequential zones in working order */
	uint32_t *zone; /* numbers of the zones */
	uint32_t read_only, offline, conventional; /* a zone in that state; NONE: there is none */
	uint32_t block;
	uint64_t cap; /* capacity of zone[0], zone[1], …, which are all equal */
	uint32_t max_io;
	uint8_t *buf; /* CONFORM_BUF bytes, aligned */
	pid_t peer[CONFORM_PEERS]; /* child processes of the running case; 0: none */
};
extern struct conform t;

#define NONE UINT32_MAX
#define CONFORM_BUF MIB(8)

void conform_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));
void conform_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void conform_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

extern struct zns_err conform_err;
#define E (&conform_err)

/* The call must succeed. */
#define OK(call)                                                                  \
	do {                                                                      \
		int rc_ = (call);                                                 \
		if (rc_)                                                          \
			conform_fail(__FILE__, __LINE__, "%s: %d %s", #call, rc_, \
				     conform_err.msg);                            \
	} while (0)

/* The call must fail with this errno, and its error text must contain @text. */
#define FAILS(call, want, text)                                                                    \
	do {                                                                                       \
		conform_err = (struct zns_err)ZNS_ERR_INIT;                                        \
		int rc_ = (call);                                                                  \
		if (rc_ != -(want))                                                                \
			conform_fail(__FILE__, __LINE__, "%s: %d instead of -%s (%s)", #call, rc_, \
				     #want, conform_err.msg);                                      \
		if (conform_err.code != -(want) || !strstr(conform_err.msg, text))                 \
			conform_fail(__FILE__, __LINE__,                                           \
				     "%s: it says \"%s\" (%d), without \"%s\"", #call,             \
				     conform_err.msg, conform_err.code, text);                     \
	} while (0)

#define TRUE(cond)                                                             \
	do {                                                                   \
		if (!(cond))                                                   \
			conform_fail(__FILE__, __LINE__, "not so: %s", #cond); \
	} while (0)

#define SAME(a, b)                                                                            \
	do {                                                                                  \
		unsigned long long a_ = (a), b_ = (b);                                        \
		if (a_ != b_)                                                                 \
			conform_fail(__FILE__, __LINE__, "%s is %llu, not %llu", #a, a_, b_); \
	} while (0)

/* The zone must be in this state, and have this write pointer. */
#define ZONE(zone, want, at)                                                                \
	do {                                                                                \
		struct zns_zone z_ = zone_of(zone);                                         \
		if (z_.state != (want) || z_.wp != (at))                                    \
			conform_fail(__FILE__, __LINE__,                                    \
				     "zone %u is in state %d, wp %llu; should be %s, %llu", \
				     z_.index, z_.state, (unsigned long long)z_.wp, #want,  \
				     (unsigned long long)(at));                             \
	} while (0)

struct zns_zone zone_of(uint32_t zone);
/* Bytes that depend on their place. @tag makes the data of two writers different. */
void pattern(uint8_t *buf, uint32_t zone, uint64_t off, size_t len, uint32_t tag);
bool is_pattern(const uint8_t *buf, uint32_t zone, uint64_t off, size_t len, uint32_t tag);
/* Write a pattern at @off by whole transfers, or read it back and compare. */
void put(uint32_t zone, uint64_t off, uint64_t len);
void check(uint32_t zone, uint64_t off, uint64_t len);
void reset_everything(void);

#endif
