/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_CONTROL_H
#define ZNS_DEV_CONTROL_H
/* Hooks for test builds. The product links control_none.c, where none of these functions has an
 * effect. A test build links test/controls instead, which can cut the power, inject faults and add
 * noise. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

struct emu;
struct emu_cal;

/* called when all other parts of the device are open */
int emu_control_open(struct emu *e, struct zns_err *err);
void emu_control_close(struct emu *e); /* must also be called for a device that failed to open */
bool emu_stores_nothing(const struct emu *e);
bool emu_flushes_all(const struct emu *e);

/* The emulated power. emu_check_power fails while it is cut; emu_power_back restores it when a
 * device is opened, with the init lock held. */
int emu_check_power(struct emu *e, struct zns_err *err);
int emu_power_back(struct emu *e, struct zns_err *err);

/* Called with the zone locked, before the read or write. Returns 0 or the error with which to
 * fail. */
int emu_fault_before(struct emu *e, bool write, uint32_t zone, uint64_t off, struct zns_err *err);
void emu_fault_after_write(struct emu *e, uint32_t zone);

/* Makes a duration longer or shorter. Called between emu_model_enter and emu_model_leave. */
uint64_t emu_noise(struct emu *e, uint64_t ns);
/* the delay of one command if no stall delays it already; a delayed command occupies no resource */
uint64_t emu_noise_command(struct emu *e, uint64_t ns);
/* returns the time at which the host notices a completion */
uint64_t emu_noise_seen(struct emu *e, uint64_t done);
/* books garbage collections up to @at and slightly beyond */
void emu_noise_collect(struct emu *e, uint64_t at);
void emu_noise_erase(struct emu *e, struct emu_cal *die, uint64_t from);

bool nvme_wants_ioctl(void);

#endif
