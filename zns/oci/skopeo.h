/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_SKOPEO_H
#define ZNS_CTL_SKOPEO_H
/*
 * Runs skopeo as a child, for push and pull. It talks to registries. On the way the image is an OCI
 * layout (oci.h) in a temporary directory of our own.
 */
#include <limits.h>
#include "../ctl/lib/ctl.h"
#include "../transfer/patience.h"

#define SKOPEO_TAG "checkpoint"
#define SKOPEO_OPTIONS 32 /* most options that are passed to skopeo */
/* push waits longer than pull, since a registry is silent while it commits a large layer. */
#define SKOPEO_INIT(seconds)          \
	{                             \
		.timeout_s = seconds, \
	}
#define SKOPEO_TIMEOUT(w) CTL_DURATION("timeout", &(w)->timeout_s, 0)

struct skopeo {
	const char *tmp, *registry;
	char dir[PATH_MAX]; /* the temporary directory; empty: not made yet */
	char layout[PATH_MAX + 32]; /* DIR/layout:TAG */
	char *const *options; /* options for skopeo */
	int nr_options;
	uint64_t timeout_s; /* s; 0: no limit */
	struct ctl_patience patience; /* limits the waiting for the registry */
};

/*
 * Parses the command line: @own arguments of ours, the last of which is the registry's name, then
 * skopeo's options. Returns 0 or an exit code.
 */
int skopeo_take(const struct ctl_cmd *cmd, struct ctl_args *args, int own, struct skopeo *w);
int skopeo_dir(struct skopeo *w, struct zns_err *err); /* makes the directory */
void skopeo_dir_end(const struct skopeo *w);
/* Blobs are copied unchanged, so a parent's layer that the registry already has is not sent. */
int skopeo_copy(struct skopeo *w, char *from, char *to, bool silent, struct zns_err *err);
/* Finds the message in the last line of @text, which is: time="…" level=fatal msg="…" */
const char *skopeo_words(char *text);
/* Fills @err if skopeo cannot be started. */
int skopeo_not_there(int ret, struct zns_err *err);

#define SKOPEO_TMP_HELP                                                                               \
	"  --timeout S     give up when the registry is silent for so long, or moves\n"               \
	"                  under 64 KiB/s (60, push 600; 0: never)\n"                                 \
	"  --tmp DIR       what must be in files on its way; else $TMPDIR or /var/tmp\n" CTL_DEV_HELP \
	"  -- …            options of skopeo copy, such as --authfile FILE\n"

#endif
