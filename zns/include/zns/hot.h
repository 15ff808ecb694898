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
	uint32_t slot_bytes; /* a larger unit is not kept */
};

/* As many slots as @bytes can hold; 0: not even one set. */
uint32_t zns_hot_slots(uint64_t bytes, uint32_t slot_bytes);

/* znsd's end. No memory is taken before a unit comes. */
int zns_hot_new(const struct zns_hot_shape *shape, struct zns_hot **out, struct zns_err *err);
/* For the other ends; it stays @h's. */
int zns_hot_fd(const struct zns_hot *h);
/* A helper's end. @owner is its number, from znsd. Takes @fd, also on failure. */
int zns_hot_join(int fd, const struct zns_hot_shape *shape, uint32_t owner, struct zns_hot **out,
		 struct zns_err *err);
void zns_hot_free(struct zns_hot *h); /* NULL is fine; nobody may be in it */

/* Units of @zone are kept until then (zns_mono_ns); 0: not any more. */
void zns_hot_keep(struct zns_hot *h, uint32_t zone, uint64_t until_ns);
/* @zone is about to be reset: none of its units is found again. */
void zns_hot_forget_zone(struct zns_hot *h, uint32_t zone);
/* A helper is gone: nobody waits for what it wanted to bring. */
void zns_hot_forget_owner(struct zns_hot *h, uint32_t owner);

/* Are units of @zone kept now? */
bool zns_hot_wanted(const struct zns_hot *h, uint32_t zone);

struct zns_hot_unit {
	uint32_t zone, len;
	uint64_t off; /* in the zone */
	uint64_t sum; /* its checksum, from the reader's own manifest */
};

/* A slot as it was found or taken. */
struct zns_hot_place {
	uint32_t slot;
	uint64_t word;
};

enum zns_hot_got {
	ZNS_HOT_NONE, /* read it from the device; nobody else learns of it */
	ZNS_HOT_HAVE, /* in the buffer, to be verified; if it is wrong, call zns_hot_wrong() */
	ZNS_HOT_FILL, /* read it from the device, then call zns_hot_put(): others wait for it */
};

/*
 * The unit @u into @buf, or the right to bring it if @fill. Whoever waits for a token bucket does
 * so without that right. Waits while another one brings the unit.
 */
enum zns_hot_got zns_hot_get(struct zns_hot *h, const struct zns_hot_unit *u, void *buf, bool fill,
			     struct zns_hot_place *at);
/* @buf NULL: it did not come. */
void zns_hot_put(struct zns_hot *h, const struct zns_hot_unit *u, const struct zns_hot_place *at,
		 const void *buf);
/* What stands in the slot is not the unit. */
void zns_hot_wrong(struct zns_hot *h, const struct zns_hot_place *at);

/* Sums over all participants. A participant can falsify them. */
struct zns_hot_figures {
	uint64_t limit, used; /* bytes */
	uint64_t filled, had, wrong; /* units that were brought, handed out, found to be wrong */
	uint64_t late; /* waits in vain */
};
void zns_hot_figures(const struct zns_hot *h, struct zns_hot_figures *out);

#endif
