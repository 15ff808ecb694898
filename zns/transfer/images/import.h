/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_IMPORT_H
#define ZNS_CTL_IMPORT_H
/*
 * Shared by cmd_import.c (the command), import.c (the directories), import_archive.c (an archive as
 * source), import_image.c (one image), import_join.c, and the import sources of packages (struct
 * import_source). The source may belong to any user, who may change it meanwhile. So each file is
 * read once, and the import fails if a file differs from what was listed.
 */
#include <sys/stat.h>
#include "../../ctl/lib/ctl.h"
#include "outdir.h"
#include "zns/handle.h"
#include "zns/save.h"

struct import_file {
	char *name;
	uint64_t size;
	struct stat st; /* state of the file when it was listed, for a file of a directory */
	/*
	 * bytes of a small image as they were written to the device, for the copy beside the handle
	 */
	uint8_t *copy;
};

/* An archive that is read once, from front to end. */
struct import_stream {
	int fd;
	uint64_t bytes;
	/*
	 * seen() is called with all data of the images. right() is called at the end and checks
	 * them, before anything is durable.
	 */
	void (*seen)(void *arg, const void *buf, size_t len);
	int (*right)(void *arg, struct zns_err *err);
	void *arg;
	struct ctl_patience *patience; /* time limit for the sender; NULL: none */
};

#define IMPORT_SHA_BYTES 32
struct import {
	const char *path; /* the source, as the user gave it */
	int dir; /* the source directory; -1: the source is an archive */
	int archive; /* the source archive; -1: none */
	const struct import_stream *stream; /* the source is a stream; NULL: it is not */
	/* the directory in the archive that contains the images; NULL: the top level */
	const char *inside;
	/* SHA-256 of the layer that is imported; NULL: the source is no layer */
	const uint8_t *layer;
	bool empty; /* the archive has no checkpoint in `inside` */
	struct stat archive_st;
	struct import_file *files;
	size_t nr_files, nr_skipped;
	char container[256];
	bool named; /* the user who imports has named the container */
	uint32_t qos_mibps;
	const char *admission;
	struct ctl_outdir handle; /* the directory of --handle */
	const char *parent_id; /* the id of --parent; NULL: not given */
	bool by_layer; /* parent_id comes from the layers of an image, not from the user */
	bool has_parent, pre_dump;
	uint8_t parent[ZNS_UUID_LEN];
	/* the handle that the source directory's link `parent` leads to; NULL: none */
	ZnsPb__Handle *parent_handle;
	struct ctl_progress prog;
	struct zns_session s;
	struct zns_save v;
	uint8_t *buf; /* buffer of import_image() */
	uint64_t copies; /* bytes of all plain copies */
	uint32_t nr_copies;
	/*
	 * import_sealed.c: sealed: the images stay encrypted as they are; authentic: a key has
	 * authenticated them
	 */
	bool sealed, authentic;
	/*
	 * --join: complete the pages-only checkpoint that the directory's handle names; the fields
	 * below belong to it
	 */
	bool join;
	ZnsPb__Handle *old_handle;
	ZnsPb__Response *answer;
	const ZnsPb__Checkpoint *pages;
	ZnsPb__Manifest *pages_m;
};

#define IMPORT_INIT(x)                                                          \
	{                                                                       \
		.s = ZNS_SESSION_INIT, .v.s = &(x).s, .dir = -1, .archive = -1, \
		.handle = CTL_OUTDIR_INIT                                       \
	}

#define IMPORT_COPIES_MAX 2000 /* number of plain copies; the limit of a dump is the same */
#define IMPORT_INVENTORY_MAGIC 0x58313116u
bool import_is_image(const char *name);
/*
 * Takes the container's name from --container or --as, which mean the same. Returns 0 or CTL_USAGE.
 */
int import_name(const struct ctl_cmd *cmd, struct import *x, const char *given);
/*
 * Finds the parent. With one, the checkpoint is imported as an incremental one. The parent comes
 * from @linked, from --parent, or from both, which must then agree.
 */
int import_parent(struct import *x, bool linked, struct zns_err *err);

/* Lists the images in x->path. Refuses all but a complete plain checkpoint. */
int import_scan(struct import *x, struct zns_err *err);
/* Lists the images in x->dir, except those of the manifest @without (NULL: lists all). */
int import_list(struct import *x, const ZnsPb__Manifest *without, struct zns_err *err);
/* Adds a file to the list, with a copy of its name. */
int import_add(struct import *x, const char *name, uint64_t size, const struct stat *st,
	       struct zns_err *err);
/* Reads the files of the directory in the order of the list. */
int import_read_dir(struct import *x, struct zns_err *err);
/* import_image.c: writes one image. @get delivers its bytes from front to end. */
typedef int (*import_get)(void *arg, uint8_t *buf, size_t len, uint64_t off, struct zns_err *err);
int import_image(struct import *x, struct import_file *f, import_get get, void *arg,
		 struct zns_err *err);
/* Writes plain copies of small images. The handle will list them. */
int import_write_copies(struct import *x, struct zns_err *err);
void import_undo_copies(const struct import *x);
void import_fini(struct import *x);

/* import_archive.c: the same two steps for an archive: first list, then read. */
int import_archive_scan(struct import *x, struct zns_err *err);
int import_read_archive(struct import *x, struct zns_err *err);
/* For a stream, which cannot be listed first: errors are found while it is read. */
void import_stream_begin(struct import *x);
int import_read_stream(struct import *x, struct zns_err *err);

/* import_run.c: runs an import from start to end. */
int import_run(struct import *x, const char *spec, const char *handle, struct zns_err *err);
int import_print(const struct import *x, const char *handle, bool json, double seconds);

/* An import source of a package. It may contain several checkpoints. */
struct import_source {
	/* Imports. @model has the options. *@found belongs to the package, also after an error. */
	int (*run)(const struct import *model, const char *spec, const char *handle, void **found,
		   struct zns_err *err);
	/* the newest checkpoint; valid after success */
	const struct import *(*newest)(const void *found);
	void (*end)(void *found); /* frees @found, which may be NULL */
};
/* cmd_import.c: runs the command. @oci: the source for --oci; NULL: the program has none. */
int import_command(const struct ctl_cmd *cmd, int argc, char **argv,
		   const struct import_source *oci);
extern const struct ctl_cmd transfer_import;
void import_end(struct import *x);

/*
 * import_join.c: finds the checkpoint to complete, connects and opens the device. @spec may be
 * NULL.
 */
int import_join_open(struct import *x, const char *spec, struct zns_err *err);
/* Lists the images to add. Call import_join_open() first. */
int import_join_scan(struct import *x, struct zns_err *err);
/* Makes the new record, still without places. NULL: no memory. */
ZnsPb__Checkpoint *import_join_record(const struct import *x);
/* Writes the handle again: the plain files that were added are copies of images now. */
int import_join_handle(struct import *x, struct zns_err *err);
void import_join_fini(struct import *x);

#endif
