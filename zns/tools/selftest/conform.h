/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CONFORM_H
#define CONFORM_H
/*
 * Conformance tests: all that zns/dev.h promises, as test cases that run on any device that it can
 * open. All data on the device are lost. One thread runs the cases, on one device.
 */
#include <stdint.h>

#include "zns/dev.h"

struct conform_case {
	const char *name;
	void (*run)(void);
	uint32_t zones; /* fewest zones that the case needs */
};
/* Each array ends with an entry whose name is NULL. */
extern const struct conform_case data_cases[], zone_cases[], limit_cases[], share_cases[];

enum conform_verdict { CONFORM_PASSED, CONFORM_FAILED, CONFORM_SKIPPED };
/* Called after each case. @text: why it failed or was skipped, a remark, or "". */
typedef void (*conform_said)(void *arg, const char *name, enum conform_verdict v, double seconds,
			     const char *text);

/*
 * Opens @spec and finds out which zones there are. @twin is borrowed. Errors as of zns_dev_open();
 * -EIO: the device does not report its zones correctly.
 */
int conform_open(const char *spec, const char *twin, struct zns_err *err);
void conform_close(void);
/* Runs the cases whose name contains @only (NULL: all), each after a reset of the device. */
void conform_run(const struct conform_case *cases, const char *only, conform_said said, void *arg);
/* Resets all zones. -EIO: they cannot be reset. */
int conform_reset(struct zns_err *err);

#endif
