/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_PAGES_H__
#define __CR_ZNS_PAGES_H__
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns-wire.h"

/* Our data of a struct cr_img. They lie outside of its union; zns_img_close() frees them. */
struct zns_img {
	bool pages;
	bool read; /* the image was opened for reading */
	uint32_t id; /* the helper's number of the image, if it has pages */
	uint64_t size; /* bytes; set in a restore */
	int fd; /* a memfd that is sent to the helper at close, a pipe for pages, or -1 */
	char name[ZW_NAME];
	struct zns_windows *windows; /* set for pages that are read one by one; else NULL */
};

/* Lists the rseq areas of the task's threads, which change while the task is frozen. */
extern void zns_tell_unsteady(pid_t pid);
extern int zns_pages_seal(struct zns_img *zi);
extern void zns_pages_drop_windows(struct zns_img *zi);

#endif
