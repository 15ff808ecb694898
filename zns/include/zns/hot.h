/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HOT_H
#define ZNS_HOT_H
/*
 * A cache of units that several restores want at the same time: memory shared by the restores of
 * one device, so that each unit is read from the device only once. znsd creates it and decides
 * which zones are hot, that is, whose units are shared. Helpers fill and read it. It holds units as
 * they are on the device, so encrypted ones stay encrypted.
 *
 * The memory is not trusted, since any participant may write anything to it at any time. A reader
 * copies a unit out and verifies the copy as if it came from the device; if it is wrong, it reads
 * the unit from the device. A participant may die or stop at any moment. Others wait at most
 * ZNS_HOT_WAIT_MS for a unit that it was loading, and after several waits in vain they stop using
 * the cache.
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

/* How many slots fit into @bytes; 0: less than one set of slots fits. */
uint32_t zns_hot_slots(uint64_t bytes, uint32_t slot_bytes);

/* Creates the cache; for znsd. Memory is allocated only when the first unit is stored. */
int zns_hot_new(const struct zns_hot_shape *shape, struct zns_hot **out, struct zns_err *err);
/* Returns a descriptor to send to the other processes; @h keeps owning it. */
int zns_hot_fd(const struct zns_hot *h);
/* Joins the cache; for a helper. @owner is the number that znsd gave it. Takes ownership of @fd,
 * also on failure. */
int zns_hot_join(int fd, const struct zns_hot_shape *shape, uint32_t owner, struct zns_hot **out,
		 struct zns_err *err);
void zns_hot_free(struct zns_hot *h); /* @h may be NULL; no thread may be using it */

/* Units of @zone are shared until @until_ns (of zns_mono_ns); 0: they are not shared any more. */
void zns_hot_keep(struct zns_hot *h, uint32_t zone, uint64_t until_ns);
/* To be called before @zone is reset: its units are not found any more. */
void zns_hot_forget_zone(struct zns_hot *h, uint32_t zone);
/* To be called when a helper has died: nobody waits any longer for units that it was loading. */
void zns_hot_forget_owner(struct zns_hot *h, uint32_t owner);

/* Are units of @zone shared now? */
bool zns_hot_wanted(const struct zns_hot *h, uint32_t zone);

struct zns_hot_unit {
	uint32_t zone, len;
	uint64_t off; /* offset of the unit in the zone */
	uint64_t sum; /* the unit's checksum, from the reader's own manifest */
};

/* A slot in which a unit was found, or that was taken to be filled. */
struct zns_hot_place {
	uint32_t slot;
	uint64_t word;
};

enum zns_hot_got {
	/* the unit is not in the cache: read it from the device; it will not be shared */
	ZNS_HOT_NONE,
	/* the unit was copied to the buffer; verify it, and call zns_hot_wrong() if it is wrong */
	ZNS_HOT_HAVE,
	/* read the unit from the device, then call zns_hot_put(): others wait for it */
	ZNS_HOT_FILL,
};

/* Copies the unit @u to @buf, waiting if another process is loading it. If it is not in the cache
 * and @fill is true, the call may reserve a slot (ZNS_HOT_FILL): the caller then must read the unit
 * from the device. So @fill must be false for a caller that would first wait for a token bucket. */
enum zns_hot_got zns_hot_get(struct zns_hot *h, const struct zns_hot_unit *u, void *buf, bool fill,
			     struct zns_hot_place *at);
/* Stores the unit in the slot that was reserved. @buf NULL: the unit could not be read. */
void zns_hot_put(struct zns_hot *h, const struct zns_hot_unit *u, const struct zns_hot_place *at,
		 const void *buf);
/* Removes the contents of the slot, which did not match the unit. */
void zns_hot_wrong(struct zns_hot *h, const struct zns_hot_place *at);

/* Sums over all participants. They are not trustworthy, since any participant can change them. */
struct zns_hot_figures {
	uint64_t limit, used; /* size of the cache, and how much of it is used, bytes */
	uint64_t filled, had, wrong; /* units that were stored, copied out, and found to be wrong */
	uint64_t late; /* number of waits in vain */
};
void zns_hot_figures(const struct zns_hot *h, struct zns_hot_figures *out);

#endif
