/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_FILES_H__
#define __CR_ZNS_FILES_H__
/*
 * Files that plugins (criu_get_image_dir()) and scripts write into the image directory during a
 * dump. They are part of the checkpoint. The helper stores them, and puts them back before a
 * restore, where plugins read them.
 */

/* remembers which files exist; 0, or -1 after printing one line */
extern int zns_files_begin(void);
/* Before the commit: hands over new and changed files. 0 or -1 with one line. */
extern int zns_files_take(void);

#endif
