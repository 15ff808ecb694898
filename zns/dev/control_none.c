/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The hooks of control.h in the product: no faults, no power cuts, no noise. */
#include "control.h"

int emu_control_open(struct emu *e, struct zns_err *err)
{
	return 0;
}

void emu_control_close(struct emu *e)
{
}

bool emu_stores_nothing(const struct emu *e)
{
	return false;
}

bool emu_flushes_all(const struct emu *e)
{
	return false;
}

int emu_check_power(struct emu *e, struct zns_err *err)
{
	return 0;
}

int emu_power_back(struct emu *e, struct zns_err *err)
{
	return 0;
}

int emu_fault_before(struct emu *e, bool write, uint32_t zone, uint64_t off, struct zns_err *err)
{
	return 0;
}

void emu_fault_after_write(struct emu *e, uint32_t zone)
{
}

uint64_t emu_noise(struct emu *e, uint64_t ns)
{
	return ns;
}

uint64_t emu_noise_command(struct emu *e, uint64_t ns)
{
	return ns;
}

uint64_t emu_noise_seen(struct emu *e, uint64_t done)
{
	return done;
}

void emu_noise_collect(struct emu *e, uint64_t at)
{
}

void emu_noise_erase(struct emu *e, struct emu_cal *die, uint64_t from)
{
}

bool nvme_wants_ioctl(void)
{
	return false;
}
