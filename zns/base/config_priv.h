/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_BASE_CONFIG_PRIV_H
#define ZNS_BASE_CONFIG_PRIV_H
#include "zns/config.h"

/*
 * One "key = value" file, read line by line. Blank lines and lines that begin with '#' are skipped.
 * @text is changed: the strings handed out point into it.
 */
struct conf_iter {
	char *next;
	unsigned line; /* of what was handed out last, from 1 */
};

/* 1 and a pair, 0 at the end, -EINVAL for a line that is no "key = value". */
int conf_next(struct conf_iter *it, char **key, char **value);

/* Create DIR (and what is above it), 0700 where missing. */
int conf_mkdirs(const char *dir, struct zns_err *err);

/* An fd that holds the configuration's write lock until it is closed, or -errno. Creates the
 * directory. */
int conf_lock(struct zns_err *err);

#endif
