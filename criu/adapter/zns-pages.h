/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_PAGES_H__
#define __CR_ZNS_PAGES_H__
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns-wire.h"

/* Our data of a struct cr_img; outside its union, freed by zns_img_close. */
struct zns_img {
	bool pages;
	bool read; /* true if it was opened for reading */
	uint32_t id; /* the helper's number for it, if pages */
	uint64_t size; /* size in bytes, in a restore */
	int fd; /* memfd to hand over at close, or the pipe for pages, or -1 */
	char name[ZW_NAME];
	struct zns_windows *windows; /* for pages that are read one by one; else NULL */
};

/* The rseq areas of the task's threads, which change while it is frozen. */
extern void zns_tell_unsteady(pid_t pid);
extern int zns_pages_seal(struct zns_img *zi);
extern void zns_pages_drop_windows(struct zns_img *zi);

#endif
