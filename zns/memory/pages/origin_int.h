/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef PAGES_ORIGIN_INT_H
#define PAGES_ORIGIN_INT_H
/* The internal interface of an origin: its table (origin_table.c) and its checkpoint (origin.c). */
#include "zns/origin.h"

#define ORIGIN_RECORDS (1u << 24)
#define ORIGIN_HEAD 4096 /* bytes of the header, before the records */

/* Pages of a unit that are contiguous in an image. */
struct origin_record {
	uint64_t first; /* index of the first page in the image */
	uint32_t image;
	uint16_t pages; /* bits: these pages of the unit */
	uint16_t more; /* 1: the next record belongs to the same unit */
};

struct origin_head {
	char magic[8];
	uint8_t device[ZNS_UUID_LEN], checkpoint[ZNS_UUID_LEN];
	uint32_t nr; /* number of records */
};

struct origin_table {
	int fd;
	struct origin_head *head;
	struct origin_record *r;
};

int origin_table_new(struct origin_table *t);
int origin_table_take(struct origin_table *t, int fd); /* duplicates @fd */
void origin_table_free(struct origin_table *t);

/* Like zns_origin_add(). @size: bytes of the image. */
int origin_table_add(struct origin_table *t, uint32_t image, uint64_t size,
		     const struct zns_origin_part *v, size_t nr, struct zns_mem_given **out,
		     size_t *nr_out, struct zns_err *err);

/* Finds the records of a unit and returns their number. 0: there is no such place. */
uint32_t origin_table_find(const struct origin_table *t, uint64_t place,
			   const struct origin_record **out);

#endif
