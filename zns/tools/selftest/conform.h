/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CONFORM_H
#define CONFORM_H
/*
 * One behaviour, every backend: what zns/dev.h promises, as cases that run on any device it opens.
 * All data of the device are lost. One thread runs cases, on one device.
 */
#include <stdint.h>

#include "zns/dev.h"

struct conform_case {
	const char *name;
	void (*run)(void);
	uint32_t zones; /* how many zones it needs at least */
};
/* All end with a name of NULL. */
extern const struct conform_case data_cases[], zone_cases[], limit_cases[], share_cases[];

enum conform_verdict { CONFORM_PASSED, CONFORM_FAILED, CONFORM_SKIPPED };
/* After each case. @text: why it failed or was skipped, or a remark, or "". */
typedef void (*conform_said)(void *arg, const char *name, enum conform_verdict v, double seconds,
			     const char *text);

/* Opens @spec and looks which zones there are, into t. @twin is kept. Errors of zns_dev_open;
 * -EIO: it does not report its zones as it should. */
int conform_open(const char *spec, const char *twin, struct zns_err *err);
void conform_close(void);
/* Runs the cases whose name contains @only (NULL: all), each after a reset of the device. */
void conform_run(const struct conform_case *cases, const char *only, conform_said said, void *arg);
/* Resets all zones. -EIO: they do not let themselves be reset. */
int conform_reset(struct zns_err *err);

#endif
