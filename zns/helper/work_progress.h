/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_PROGRESS_H
#define ZNS_HELPER_PROGRESS_H
/*
 * What a dump or restore tells of itself while it works: to znsd (which answers with the rate to
 * keep), as a line on the terminal of criu, and as JSON lines for tools. One thread of its own;
 * none of it ever waits for a reader.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/bucket.h"
#include "zns/client.h"

struct helper;
struct progress;

struct work {
	uint64_t bytes; /* done so far: written, or read and verified */
	uint64_t page_bytes;
	uint64_t data_us; /* first submit to last completion */
};

struct progress_params {
	const char *op; /* "dump" or "restore" */
	const char *container;
	uint8_t checkpoint[ZNS_UUID_LEN];
	uint32_t qos_mibps; /* asked for; 0: nothing */
	uint64_t total; /* bytes; 0: not known */
	bool guess; /* total is about that */
	int tty, json; /* descriptors, taken over; -1: none */
	void (*get)(void *arg, struct work *out);
	uint32_t (*wants)(void *arg, bool *waits); /* see zns_writer_wants; NULL: none ever */
	/* who else writes, and zones that it gained */
	void (*told)(void *arg, const ZnsPb__Response *r);
	/* NULL, or told when the broker shows no life any more */
	void (*dead)(void *arg, const struct zns_err *err);
	void *arg;
};

int progress_start(struct helper *h, const struct progress_params *p, struct zns_err *err);

/* How it ended, for the last JSON line. */
struct outcome {
	bool ok;
	const char *error; /* !ok */
	double achieved_mibps; /* 0: too short to rate */
	uint64_t frozen_us; /* dump */
	uint32_t zones, groups, shared_groups;
};

/* The thread ends; afterwards the broker's connection is the caller's alone. NULL @how: no last
 * line. Twice is fine. */
void progress_stop(struct helper *h, const struct outcome *how);

/* An error is about to be printed: no line on the terminal from here on. From any thread. */
void progress_hush(struct helper *h);

#endif
