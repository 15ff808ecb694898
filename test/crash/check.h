/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CRASH_CHECK_H
#define CRASH_CHECK_H
#include "load.h"

/* Compares the manifest and every unit with what was dumped. @wrong: a unit had other bytes and
 * a right checksum. */
int check_checkpoint(struct zns_dev *dev, const struct load_ckpt *k, const ZnsPb__Checkpoint *c,
		     bool *wrong, struct zns_err *err);

/*
 * Checks what must be true after a cut in @epoch that left each zone at @pos: every acknowledged
 * checkpoint is there and complete; no other checkpoint is visible except one that was being
 * committed or removed, and that is complete, too; the broker starts, every zone without live data
 * is freed, and the next dump commits and can be read. Returns 0, or @err says what is wrong.
 */
int check_state(struct trace *t, const struct load *l, uint32_t epoch, const uint32_t *pos,
		struct zns_err *err);

#endif
