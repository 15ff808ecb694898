/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_FILES_H__
#define __CR_ZNS_FILES_H__
/*
 * What others than criu write into the image directory during a dump: plugins (criu_get_image_dir()), scripts. It is part
 * of the checkpoint: the helper stores it, and puts it back before a restore (plugins read it from there).
 */

extern int zns_files_begin(void);	/* remember what is there already; 0 or -1 with one line */
/* Before the commit: hand over what is new or was changed. 0 or -1 with one line. */
extern int zns_files_take(void);

#endif
