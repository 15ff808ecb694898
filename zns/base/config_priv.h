/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_BASE_CONFIG_PRIV_H
#define ZNS_BASE_CONFIG_PRIV_H
#include "zns/config.h"

/* Reads a "key = value" file line by line. Skips blank lines and lines that begin with '#'.
 * Changes @text: the returned strings point into it. */
struct conf_iter {
	char *next;
	unsigned line; /* number of the last pair's line, from 1 */
};

/* Returns 1 and a pair, 0 at the end, or -EINVAL for a line that is not a pair. */
int conf_next(struct conf_iter *it, char **key, char **value);

/* Creates DIR and its missing parents with mode 0700. */
int conf_mkdirs(const char *dir, struct zns_err *err);

/* Takes the configuration's write lock and creates its directory. Close the returned fd to
 * unlock; or -errno. */
int conf_lock(struct zns_err *err);

#endif
