/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_EXPORT_H
#define ZNS_CTL_EXPORT_H
/*
 * Shared by cmd_export.c (the command, and the export to a directory), export_pack.c (to an
 * archive) and the export forms of packages (struct export_form).
 */
#include "../../ctl/lib/ctl.h"
#include "archive.h"
#include "outdir.h"
#include "zns/flat.h"

/* bytes between two progress reports; also the size of an archive's buffer */
#define EXPORT_CHUNK MIB(16)
#define EXPORT_PARENTS "parents" /* contains a directory for each parent of an exported chain */

struct export_form;
struct export
{
	struct ctl_hold h;
	ZnsPb__Response *answer; /* the broker's answer with the records of the chain */
	struct zns_chain *chain;
	/* set to merge the chain into one checkpoint; NULL: export the chain as it is */
	struct zns_flat *flat;
	struct ctl_progress prog;
	const char *target;
	struct ctl_outdir out;
	bool packed, to_stdout, flatten, metadata_only, decrypt;
	/*
	 * the checkpoint is encrypted, and its data are exported in this form, without decryption
	 */
	bool sealed;
	uint32_t done; /* images written so far */
	uint64_t bytes; /* size of these images in bytes */
	const struct export_form *form; /* the package's form; NULL: a directory or an archive */
};

/*
 * A form in which a package exports a checkpoint. Each level of the chain has a directory of its
 * own in it.
 */
struct export_form {
	/*
	 * Decides whether the checkpoint is encrypted and its whole chain can be exported without
	 * decryption. Sets x->prog.total.
	 */
	int (*sealed)(struct export *x, struct zns_err *err);
	/* the directory that contains the directories of the levels */
	const char *(*folder)(const struct export *x);
	int (*write)(struct export *x, struct zns_err *err);
	const char *(*digest)(const struct export *x); /* the digest of what was written */
	void (*advise)(const struct export *x); /* prints a line of advice for the user */
};

/* cmd_export.c: runs the command. @x: only `form` is set. */
int export_command(const struct ctl_cmd *cmd, int argc, char **argv, struct export *x);
extern const struct ctl_cmd transfer_export;

/* Reads the chain of the checkpoint that x->hold has, and what the options require. */
int export_begin(struct export *x, struct zns_err *err);
void export_end(struct export *x); /* may be called in any state, also after an error */

void export_id(const struct export *x, uint32_t level, char id[ZNS_UUID_STR]);
/* Returns the number of levels to write, each of which has a directory. */
uint32_t export_levels(const struct export *x);
const ZnsPb__Manifest *export_level(const struct export *x, uint32_t level);
uint64_t export_size(const struct export *x, uint32_t level, uint32_t image);
int export_read(struct export *x, uint32_t level, uint32_t image, uint64_t off, uint8_t *buf,
		size_t len, struct zns_err *err);
/*
 * Is this image left out? Parts of composed images are never exported. --metadata-only leaves out
 * memory pages, since crit and checkpointctl read only pagemaps.
 */
bool export_leaves_out(const struct export *x, uint32_t level, uint32_t image);
/*
 * The directory for the images of a level, with a slash at the end. Its name does not depend on the
 * other levels that are exported, so the export of a level always has the same bytes.
 */
void export_prefix(const struct export *x, uint32_t level, char *out, size_t len);
/*
 * The target of the symbolic link `parent` in a level's directory. false: the level has no parent.
 */
bool export_link(const struct export *x, uint32_t level, char *out, size_t len);

/* export_pack.c */
int export_to_archive(struct export *x, struct zns_err *err);
/* Adds the images of a level, and its link, to an archive. @buf: EXPORT_CHUNK bytes. */
int export_pack_level(struct export *x, struct ctl_pack *p, uint32_t level, uint8_t *buf,
		      struct zns_err *err);

#endif
