/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CRASH_CHECK_H
#define CRASH_CHECK_H
#include "load.h"

/* Manifest and every unit against what was dumped. @wrong: other bytes came with a good checksum.
 */
int check_checkpoint(struct zns_dev *dev, const struct load_ckpt *k, const ZnsPb__Checkpoint *c,
		     bool *wrong, struct zns_err *err);

/*
 * What must hold after a cut in @epoch that left each zone at @pos: every acknowledged checkpoint
 * is there, whole; no other is visible but what was just being committed or removed; nothing is
 * wrong with those either; the broker comes up, every zone without live data comes back, and the
 * next dump commits and reads back. 0, or @err says what broke.
 */
int check_state(struct trace *t, const struct load *l, uint32_t epoch, const uint32_t *pos,
		struct zns_err *err);

#endif
