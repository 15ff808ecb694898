/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_SHOW_H
#define ZNS_CTL_SHOW_H
/* show_tree.c: prints the checkpoints of a container as text. */
#include "lib/ctl.h"

/* cmd_show.c: the command. @show_layouts: what --layout does, or NULL: another program does it. */
typedef int (*show_layout_fn)(const char *dev, const struct ctl_pick *p, struct json_object *list,
			      struct zns_err *err);
int show_command(const struct ctl_cmd *cmd, int argc, char **argv, show_layout_fn show_layouts);
extern const struct ctl_cmd command_show;

/*
 * Prints the line of a container, to which all of @v belong: the number of its checkpoints and
 * their total size.
 */
void show_container(const ZnsPb__Checkpoint *const *v, size_t n);
/*
 * Prints a checkpoint with its images, summed up or one by one (@verbose). @width: number of digits
 * of ids. @places: also print the zones of each image.
 */
void show_branch(const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m, const ZnsPb__Response *ls,
		 int width, bool verbose, bool places);

#endif
