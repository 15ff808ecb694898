/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HOT_H
#define ZNS_HOT_H
/*
 * Units that several restores want at the same time: memory that the restores of one device share,
 * so that each unit is read from the device once while it is hot. znsd makes it and says which
 * zones are hot; helpers fill and read it. It holds units as they are on the device, so encrypted
 * ones stay encrypted.
 *
 * The memory is not trusted, since any participant may write anything there at any time. A reader
 * copies a unit out and verifies the copy as if it came from the device; if it is wrong the reader
 * reads the device. So a participant may die or stop at any moment. The others wait for a unit that
 * it was to bring for ZNS_HOT_WAIT_MS at most, and after some waits in vain they do without.
 *
 * All functions may be called from any thread.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

#define ZNS_HOT_WAIT_MS 1000

struct zns_hot;

struct zns_hot_shape {
	uint32_t nr_zones, nr_slots;
	uint32_t slot_bytes; /* a larger unit is not shared */
};

/* How many slots fit into @bytes; 0: not even one set of slots fits. */
uint32_t zns_hot_slots(uint64_t bytes, uint32_t slot_bytes);

/* For znsd. Memory is taken only when the first unit comes. */
int zns_hot_new(const struct zns_hot_shape *shape, struct zns_hot **out, struct zns_err *err);
/* A descriptor to send to the other processes; @h keeps owning it. */
int zns_hot_fd(const struct zns_hot *h);
/* A helper's end. @owner is its number, from znsd. Takes @fd, also on failure. */
int zns_hot_join(int fd, const struct zns_hot_shape *shape, uint32_t owner, struct zns_hot **out,
		 struct zns_err *err);
void zns_hot_free(struct zns_hot *h); /* NULL is fine; no thread may be using it */

/* Units of @zone are shared until this time (zns_mono_ns); 0: not any more. */
void zns_hot_keep(struct zns_hot *h, uint32_t zone, uint64_t until_ns);
/* @zone is about to be reset: none of its units is found again. */
void zns_hot_forget_zone(struct zns_hot *h, uint32_t zone);
/* A helper has died: nobody waits any longer for units that it was to bring. */
void zns_hot_forget_owner(struct zns_hot *h, uint32_t owner);

/* Are units of @zone shared now? */
bool zns_hot_wanted(const struct zns_hot *h, uint32_t zone);

struct zns_hot_unit {
	uint32_t zone, len;
	uint64_t off; /* offset in the zone */
	uint64_t sum; /* the unit's checksum, from the reader's own manifest */
};

/* A slot that was found or taken. */
struct zns_hot_place {
	uint32_t slot;
	uint64_t word;
};

enum zns_hot_got {
	ZNS_HOT_NONE, /* read the unit from the device; it will not be shared */
	/* the unit is in the buffer, to be verified; if it is wrong, call zns_hot_wrong() */
	ZNS_HOT_HAVE,
	ZNS_HOT_FILL, /* read it from the device, then call zns_hot_put(): others wait for it */
};

/* Copies the unit @u into @buf, or, if @fill, may give the right to bring it: the caller then reads
 * it from the device. A caller that waits for a token bucket must not hold that right. Waits while
 * another process brings the unit. */
enum zns_hot_got zns_hot_get(struct zns_hot *h, const struct zns_hot_unit *u, void *buf, bool fill,
			     struct zns_hot_place *at);
/* @buf NULL: the unit could not be read. */
void zns_hot_put(struct zns_hot *h, const struct zns_hot_unit *u, const struct zns_hot_place *at,
		 const void *buf);
/* The contents of the slot do not match the unit. */
void zns_hot_wrong(struct zns_hot *h, const struct zns_hot_place *at);

/* Sums over all participants. A participant can falsify them. */
struct zns_hot_figures {
	uint64_t limit, used; /* bytes */
	uint64_t filled, had, wrong; /* units that were brought, handed out, found to be wrong */
	uint64_t late; /* waits in vain */
};
void zns_hot_figures(const struct zns_hot *h, struct zns_hot_figures *out);

#endif
