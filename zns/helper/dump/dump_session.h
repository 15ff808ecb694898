/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_DUMP_H
#define ZNS_HELPER_DUMP_H
#include <pthread.h>
#include "../helper.h"
#include "../work_progress.h"
#include "zns/handle.h"
#include "zns/save.h"

/* A small image, kept in memory for its plain copy beside the handle (design.md §6). */
struct copy {
	char name[ZW_NAME];
	uint8_t *data;
	size_t len;
	bool beside; /* the file is in the image directory already */
	struct copy *next;
};

/*
 * A file in the image directory that another program wrote. It is stored on the device, so the
 * commit removes it from the directory.
 */
struct taken {
	char name[ZW_NAME];
	struct taken *next;
};

struct live;

/*
 * A pages image that criu writes during the dump. The pages image of a live dump is composed at the
 * end, and has no entry here.
 */
struct pages {
	char name[ZW_NAME];
	struct zns_wimage *img; /* NULL until the image gets its first page */
	bool live;
};

struct stream {
	pthread_t thread;
	struct dump *d;
	struct zns_wimage *img;
	int fd;
	struct stream *next;
};

struct dump {
	struct helper *h;
	struct zns_save v;
	char container[ZW_STR];
	uint32_t qos_mibps;
	bool pages_only; /* the dump of a page server, which receives pages and no other image */
	/* lazy migration: pages that the destination fetches later are not sent in this dump */
	bool post_copy;
	/* why a file of the runtime was not stored; NULL: none was left out */
	const char *left_out;
	bool has_parent, pre_dump;
	pid_t pid; /* PID of the root of the dumped tree */
	/* set for --zns-live, and for a dump that uses trackers without it; else NULL */
	struct live *live;
	struct paged *paged; /* set if a pager has some of the memory (paged.c); else NULL */
	uint8_t parent[ZNS_UUID_LEN];
	ZnsPb__Handle *parent_handle; /* the handle that named the parent; NULL: no handle did */
	uint64_t expected; /* bytes, estimated */
	uint64_t parent_bytes; /* bytes of pages that pagemaps leave to the parent */
	struct pages *pages;
	uint32_t nr_pages, max_pages;
	struct stream *streams;
	struct copy *copies, **copies_tail;
	/* copies into the image directory that are under way; NULL: none */
	struct copying *copying;
	struct taken *taken;
	uint32_t nr_copies;
	size_t copies_len;
	pthread_mutex_t lock; /* protects err and v.w */
	struct zns_err err; /* an error outside the writer; later errors do not replace it */
	bool anew; /* v.w was replaced by a new writer, which is granted no further zones */
};

void dump_fail(struct dump *d, const struct zns_err *err);
int dump_check(struct dump *d, struct zns_err *err);
/*
 * Discards all that was written, and begins again with a new writer. *@room: bytes that the dump
 * can write.
 */
int dump_anew(struct dump *d, uint64_t *room, struct zns_err *err);

/* parent.c: finds the parent before admission, and its images after admission. */
int dump_parent(struct dump *d, const struct zw_begin *b, const struct zns_registered *reg,
		struct zns_err *err);
int dump_open_parents(struct dump *d, struct zns_err *err);

/*
 * copies.c: copies_begin() writes the copies in the background; copies_end() puts them into place
 * (@keep) or removes them.
 */
int copies_begin(struct dump *d, struct zns_err *err);
int copies_end(struct dump *d, bool keep, struct zns_err *err);

/* commit.c */
void dump_commit(struct dump *d, struct packet *p);

#endif
