/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_PROGRESS_H
#define ZNS_HELPER_PROGRESS_H
/*
 * Progress of a dump or restore: to znsd (which answers with the rate to keep), as a line on criu's
 * terminal, and as JSON lines for tools. It has one thread of its own, which never waits for a
 * reader.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/bucket.h"
#include "zns/client.h"

struct helper;
struct progress;

struct work {
	uint64_t bytes; /* written so far, or read and verified */
	uint64_t page_bytes;
	uint64_t data_us; /* first submit to last completion */
};

struct progress_params {
	const char *op; /* "dump" or "restore" */
	const char *container;
	uint8_t checkpoint[ZNS_UUID_LEN];
	uint32_t qos_mibps; /* the requested rate; 0: none was requested */
	uint64_t total; /* in bytes; 0: not known */
	bool guess; /* total is an estimate */
	int tty, json; /* descriptors that it owns; -1: none */
	void (*get)(void *arg, struct work *out);
	/* see zns_writer_wants; NULL: no more zones are wanted */
	uint32_t (*wants)(void *arg, bool *waits);
	/* called with the other writers and the gained zones */
	void (*told)(void *arg, const ZnsPb__Response *r);
	/* called when the broker has shown no sign of life until its deadline; may be NULL */
	void (*dead)(void *arg, const struct zns_err *err);
	void *arg;
};

int progress_start(struct helper *h, const struct progress_params *p, struct zns_err *err);

/* The outcome, for the last JSON line. */
struct outcome {
	bool ok;
	const char *error; /* !ok */
	double achieved_mibps; /* 0: the work was too short to measure a rate */
	uint64_t frozen_us; /* dump */
	uint32_t zones, groups, shared_groups;
};

/*
 * Ends the thread. Afterwards only the caller uses the broker's connection. NULL @how: no last
 * line. A second call does nothing.
 */
void progress_stop(struct helper *h, const struct outcome *how);

/* Call before an error is printed, from any thread: the terminal shows no more progress lines. */
void progress_hush(struct helper *h);

#endif
