/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CONFORM_STATE_H
#define CONFORM_STATE_H
/* Cases that want a test's own means: zones that are spoilt, an emulator that can be told so. */
#include "../../zns/tools/selftest/case.h"
#include "../controls/controls.h"

extern const struct conform_case state_cases[];
extern const char *conform_wear; /* where null_blk takes zones to spoil, or NULL */

#endif
