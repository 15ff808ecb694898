/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CONFORM_STATE_H
#define CONFORM_STATE_H
/* Cases that only a test can set up: zones that are made to fail, and emulators that can be told
 * to do so. */
#include "../../zns/tools/selftest/case.h"
#include "../controls/controls.h"

extern const struct conform_case state_cases[];
extern const char *conform_wear; /* the directory where null_blk can make zones fail, or NULL */

#endif
