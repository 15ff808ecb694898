/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_JSON_H
#define ZNS_JSON_H
/* JSON that others wrote, by json-c. Nothing in it is believed: a member of another type is as one
 * that is not there. */
#include <json.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

#define ZNS_JSON_MAX (8U << 20) /* bytes of a file */

/*
 * @len bytes with a NUL behind them: one value and nothing else. *out is the caller's
 * (json_object_put), NULL on failure. -EBADMSG names the place of the error in @path.
 */
int zns_json_parse(const char *path, const uint8_t *text, size_t len, struct json_object **out,
		   struct zns_err *err);
/* The same for a file. */
int zns_json_read(const char *path, struct json_object **out, struct zns_err *err);
/* A member, still @o's; NULL: none, or @o is no object. */
struct json_object *zns_json_get(struct json_object *o, const char *key);
/* A member that is a string without a NUL in it, or NULL. */
const char *zns_json_str(struct json_object *o, const char *key);

#endif
