/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_CONTROL_H
#define ZNS_DEV_CONTROL_H
/*
 * Where a test build takes hold of a device. The product links control_none.c, in which each of
 * these does nothing; a test build links test/controls in its place: power cuts, faults, noise.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

struct emu;
struct emu_cal;

int emu_control_open(struct emu *e, struct zns_err *err); /* the device is open otherwise */
void emu_control_close(struct emu *e); /* also of one that was not opened */
bool emu_stores_nothing(const struct emu *e);
bool emu_flushes_all(const struct emu *e);

/* Power. To be back: when a device is opened whose power was cut; the init lock is held. */
int emu_check_power(struct emu *e, struct zns_err *err);
int emu_power_back(struct emu *e, struct zns_err *err);

/* Zone locked, before the write or read; 0, or what it fails with. */
int emu_fault_before(struct emu *e, bool write, uint32_t zone, uint64_t off, struct zns_err *err);
void emu_fault_after_write(struct emu *e, uint32_t zone);

/* The time that something takes, stretched or shortened. Between enter and leave of the model. */
uint64_t emu_noise(struct emu *e, uint64_t ns);
uint64_t emu_noise_command(struct emu *e, uint64_t ns); /* no stall: a command occupies nothing */
uint64_t emu_noise_seen(struct emu *e, uint64_t done); /* when the host learns of it */
/* garbage collections up to then and a little more */
void emu_noise_collect(struct emu *e, uint64_t at);
void emu_noise_erase(struct emu *e, struct emu_cal *die, uint64_t from);

bool nvme_wants_ioctl(void);

#endif
