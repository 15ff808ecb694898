/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_JSON_H
#define ZNS_JSON_H
/* Reads JSON that other programs wrote, with json-c. All of it is checked: a member of the wrong
 * type counts as missing. */
#include <json.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

#define ZNS_JSON_MAX (8U << 20) /* largest file that is read, bytes */

/* Parses @len bytes, followed by a NUL: exactly one value. The caller owns *out (json_object_put),
 * which is NULL on failure. -EBADMSG: the message says at which place of @path the error is. */
int zns_json_parse(const char *path, const uint8_t *text, size_t len, struct json_object **out,
		   struct zns_err *err);
/* Like zns_json_parse, for a file. */
int zns_json_read(const char *path, struct json_object **out, struct zns_err *err);
/* Returns a member of @o, which keeps owning it. NULL: there is none, or @o is not an object. */
struct json_object *zns_json_get(struct json_object *o, const char *key);
/* Returns a member that is a string without a NUL in it, or NULL. */
const char *zns_json_str(struct json_object *o, const char *key);
/* How many elements @o has; 0: it is no array. */
size_t zns_json_len(struct json_object *o);

#endif
