/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_PROGRESS_H
#define ZNS_HELPER_PROGRESS_H
/*
 * Reports progress of a dump or restore: to znsd, which answers with the rate to keep; as a line on
 * criu's terminal; and as JSON lines for tools. A thread of its own does so, which never waits for
 * a reader.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/bucket.h"
#include "zns/client.h"

struct helper;
struct progress;

struct work {
	uint64_t bytes; /* bytes written so far; for a restore, read and verified */
	uint64_t page_bytes;
	uint64_t data_us; /* us from the first request to the last completion */
};

struct progress_params {
	const char *op; /* "dump" or "restore" */
	const char *container;
	uint8_t checkpoint[ZNS_UUID_LEN];
	uint32_t qos_mibps; /* the requested rate; 0: none was requested */
	uint64_t total; /* expected bytes; 0: unknown */
	bool guess; /* total is an estimate */
	int tty, json; /* descriptors of criu's terminal and of the JSON output; owned; -1: none */
	void (*get)(void *arg, struct work *out);
	/* see zns_writer_wants; NULL: no more zones are wanted */
	uint32_t (*wants)(void *arg, bool *waits);
	/*
	 * called with the broker's answer, which has the number of other writers and newly granted
	 * zones
	 */
	void (*told)(void *arg, const ZnsPb__Response *r);
	/* called when the broker was silent until its deadline; may be NULL */
	void (*dead)(void *arg, const struct zns_err *err);
	void *arg;
};

int progress_start(struct helper *h, const struct progress_params *p, struct zns_err *err);

/* The result, for the last JSON line. */
struct outcome {
	bool ok;
	const char *error; /* set if !ok */
	double achieved_mibps; /* 0: the work was too short to measure a rate */
	uint64_t frozen_us; /* us; set by a dump */
	uint32_t zones, groups, shared_groups;
};

/*
 * Ends the thread. From then on only the caller uses the connection to the broker. @how: result for
 * the last line; NULL: no last line. A second call does nothing.
 */
void progress_stop(struct helper *h, const struct outcome *how);

/* Call before an error is printed, from any thread: the terminal shows no more progress lines. */
void progress_hush(struct helper *h);

#endif
