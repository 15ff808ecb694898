/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TEST_CONTROLS_CONTROL_H
#define TEST_CONTROLS_CONTROL_H
/* The inside of the controls: their state for an open device. */
#include "../../zns/dev/emu/emu_priv.h"
#include "controls.h"

#define EMU_MAX_RULES 16
struct emu_rule {
	enum zns_emu_fault_kind kind;
	uint32_t zone;
	_Atomic uint64_t left; /* calls that succeed first */
	_Atomic uint64_t times; /* calls that fail after those */
	enum zns_emu_loss loss;
	uint64_t seed;
};

struct emu_control {
	bool no_data; /* ZNS_EMU_DATA=none */
	bool flush_all; /* ZNS_EMU_FLUSH=device */
	struct zns_dev_ops ops; /* operations of a handle that only pretends to work */
	atomic_uint appends; /* number of such operations so far, where only some are lost */
	struct zns_emu_noise noise; /* noise parameters for this handle's requests */
	/* the next bursts of noise, and the first one that is not booked yet */
	uint64_t noise_key, gc_next;
	struct emu_rule rule[EMU_MAX_RULES];
	atomic_uint nr_rules;
};

/* In the live area, at of_tests: the requested power cut. Until a new opener is alone, every
 * call fails. */
struct emu_cut {
	uint32_t cut; /* written last, when the rest is complete */
	uint32_t loss;
	uint64_t seed;
};
_Static_assert(sizeof(struct emu_cut) <= sizeof(((struct emu_live_head *)0)->of_tests), "of_tests");

/* fault.c, noise.c, lies.c, env.c */
int control_faults_from_env(struct emu *e, struct zns_err *err);
int control_noise_from_env(struct emu *e, struct zns_err *err);
int control_lies_from_env(struct emu *e, struct zns_err *err);
bool control_track_word(const char *word);

/* cut.c */
void control_cut_power(struct emu *e, enum zns_emu_loss loss, uint64_t seed);

#endif
