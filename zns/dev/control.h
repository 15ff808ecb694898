/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_CONTROL_H
#define ZNS_DEV_CONTROL_H
/* Hooks for test builds. The product links control_none.c, where each of these does nothing. A
 * test build links test/controls instead: power cuts, faults, noise. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

struct emu;
struct emu_cal;

/* called when all other parts of the device are open */
int emu_control_open(struct emu *e, struct zns_err *err);
void emu_control_close(struct emu *e); /* also for one that failed to open */
bool emu_stores_nothing(const struct emu *e);
bool emu_flushes_all(const struct emu *e);

/* Power. emu_power_back restores cut power when a device is opened. The init lock is held. */
int emu_check_power(struct emu *e, struct zns_err *err);
int emu_power_back(struct emu *e, struct zns_err *err);

/* Called with the zone locked, before the write or read. Returns 0 or the error to fail with. */
int emu_fault_before(struct emu *e, bool write, uint32_t zone, uint64_t off, struct zns_err *err);
void emu_fault_after_write(struct emu *e, uint32_t zone);

/* Stretches or shortens a duration. Between enter and leave of the model. */
uint64_t emu_noise(struct emu *e, uint64_t ns);
/* called if no stall applies: a command then occupies no resource */
uint64_t emu_noise_command(struct emu *e, uint64_t ns);
/* returns when the host notices the completion */
uint64_t emu_noise_seen(struct emu *e, uint64_t done);
/* books garbage collections up to @at and a little beyond */
void emu_noise_collect(struct emu *e, uint64_t at);
void emu_noise_erase(struct emu *e, struct emu_cal *die, uint64_t from);

bool nvme_wants_ioctl(void);

#endif
