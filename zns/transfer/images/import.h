/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_IMPORT_H
#define ZNS_CTL_IMPORT_H
/*
 * Shared by cmd_import.c (the steps), import.c (both directories), import_archive.c (an archive as
 * source), import_image.c (one image), import_join.c, and what a package imports (struct
 * import_source). The source may belong to anybody, who may
 * change it meanwhile. So a file must stay as it was listed, or the import fails. Each file is read
 * once.
 */
#include <sys/stat.h>
#include "../../ctl/lib/ctl.h"
#include "outdir.h"
#include "zns/handle.h"
#include "zns/save.h"

struct import_file {
	char *name;
	uint64_t size;
	struct stat st; /* set for a file of a directory */
	/* a small image as it was written to the device, for the copy beside the handle */
	uint8_t *copy;
};

/* An archive that is read once, from front to back. */
struct import_stream {
	int fd;
	uint64_t bytes;
	/*
	 * called with all data of the images; at the end it checks them, before anything is durable
	 */
	void (*seen)(void *arg, const void *buf, size_t len);
	int (*right)(void *arg, struct zns_err *err);
	void *arg;
	struct ctl_patience *patience; /* or NULL */
};

#define IMPORT_SHA_BYTES 32
struct import {
	const char *path; /* as given */
	int dir; /* -1: an archive, */
	int archive; /* or -1 */
	const struct import_stream *stream; /* or NULL */
	const char *inside; /* the directory in the archive that has the images; NULL: its top */
	const uint8_t *layer; /* SHA-256 of the layer that is imported; NULL: none */
	bool empty; /* the archive has no checkpoint there */
	struct stat archive_st;
	struct import_file *files;
	size_t nr_files, nr_skipped;
	char container[256];
	bool named; /* by whoever imports it */
	uint32_t qos_mibps;
	const char *admission;
	struct ctl_outdir handle; /* --handle */
	const char *parent_id; /* --parent, or NULL */
	bool by_layer; /* parent_id is what the layers of an image say */
	bool has_parent, pre_dump;
	uint8_t parent[ZNS_UUID_LEN];
	ZnsPb__Handle *parent_handle; /* the handle that named the parent, or NULL */
	struct ctl_progress prog;
	struct zns_session s;
	struct zns_save v;
	uint8_t *buf; /* for import_image */
	uint64_t copies; /* bytes of all copies */
	uint32_t nr_copies;
	/* import_sealed.c: sealed, the images stay encrypted; authentic, a key has authenticated
	 * them */
	bool sealed, authentic;
	bool join; /* join the checkpoint of pages only that the directory's handle names: */
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

#define IMPORT_COPIES_MAX 2000 /* the same limit as for a dump */
#define IMPORT_INVENTORY_MAGIC 0x58313116u
bool import_is_image(const char *name);
/* Takes the name from --container or --as, which are equivalent; 0 or CTL_USAGE. */
int import_name(const struct ctl_cmd *cmd, struct import *x, const char *given);
/* With a parent it is imported as an incremental dump. The parent comes from @linked, --parent, or
 * both. */
int import_parent(struct import *x, bool linked, struct zns_err *err);

/* Lists the images in x->path. Refuses anything but a whole plain checkpoint. */
int import_scan(struct import *x, struct zns_err *err);
/* Lists the images in x->dir except those in @without (NULL: lists all). */
int import_list(struct import *x, const ZnsPb__Manifest *without, struct zns_err *err);
/* Adds a file and copies its name. */
int import_add(struct import *x, const char *name, uint64_t size, const struct stat *st,
	       struct zns_err *err);
/* Reads the files of the directory, in the order of the list. */
int import_read_dir(struct import *x, struct zns_err *err);
/* import_image.c: writes one image. @get delivers its bytes from front to back. */
typedef int (*import_get)(void *arg, uint8_t *buf, size_t len, uint64_t off, struct zns_err *err);
int import_image(struct import *x, struct import_file *f, import_get get, void *arg,
		 struct zns_err *err);
/* Writes plain copies of small images, which the handle will list. */
int import_write_copies(struct import *x, struct zns_err *err);
void import_undo_copies(const struct import *x);
void import_fini(struct import *x);

/* import_archive.c: the same steps for an archive: list, then read. */
int import_archive_scan(struct import *x, struct zns_err *err);
int import_read_archive(struct import *x, struct zns_err *err);
/* For a stream, which cannot be listed beforehand: errors are found while it is read. */
void import_stream_begin(struct import *x);
int import_read_stream(struct import *x, struct zns_err *err);

/* import_run.c: an import from its beginning to its end. */
int import_run(struct import *x, const char *spec, const char *handle, struct zns_err *err);
int import_print(const struct import *x, const char *handle, bool json, double seconds);

/* A source that a package has: several checkpoints, maybe. */
struct import_source {
	/* @model has the options. @found is the package's, also after an error. */
	int (*run)(const struct import *model, const char *spec, const char *handle, void **found,
		   struct zns_err *err);
	const struct import *(*newest)(const void *found); /* after success */
	void (*end)(void *found); /* NULL is fine */
};
/* cmd_import.c: the command; @oci: the function for --oci, or NULL. */
int import_command(const struct ctl_cmd *cmd, int argc, char **argv,
		   const struct import_source *oci);
extern const struct ctl_cmd transfer_import;
void import_end(struct import *x);

/* import_join.c: finds the existing checkpoint, connects and opens the device. @spec may be
 * NULL. */
int import_join_open(struct import *x, const char *spec, struct zns_err *err);
/* Lists the images to add. import_join_open must have run. */
int import_join_scan(struct import *x, struct zns_err *err);
/* A new record without its places. NULL: no memory. */
ZnsPb__Checkpoint *import_join_record(const struct import *x);
/* Rewrites the handle: the plain files that were joined are copies now. */
int import_join_handle(struct import *x, struct zns_err *err);
void import_join_fini(struct import *x);

#endif
