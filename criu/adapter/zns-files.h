/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_FILES_H__
#define __CR_ZNS_FILES_H__
/*
 * Files that plugins (criu_get_image_dir()) and scripts write into the image directory during a
 * dump. They are part of the checkpoint: the helper stores them, and writes them into the directory
 * again before a restore, where plugins read them.
 */

/* remembers which files exist already; returns 0, or -1 after an error message */
extern int zns_files_begin(void);
/*
 * Call before the commit: hands new and changed files to the helper. Returns 0, or -1 after an
 * error message.
 */
extern int zns_files_take(void);

#endif
