/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_JSON_H
#define ZNS_JSON_H
/* Reads JSON from other programs with json-c. All of it is checked: a member of the wrong type
 * counts as missing. */
#include <json.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

#define ZNS_JSON_MAX (8U << 20) /* bytes of a file */

/* Parses @len bytes, followed by a NUL: one value and nothing else. The caller owns *out
 * (json_object_put), NULL on failure. -EBADMSG: the text names the place of the error in @path. */
int zns_json_parse(const char *path, const uint8_t *text, size_t len, struct json_object **out,
		   struct zns_err *err);
/* Like zns_json_parse, for a file. */
int zns_json_read(const char *path, struct json_object **out, struct zns_err *err);
/* A member of @o, which keeps owning it; NULL: there is none, or @o is not an object. */
struct json_object *zns_json_get(struct json_object *o, const char *key);
/* A member that is a string without a NUL in it, or NULL. */
const char *zns_json_str(struct json_object *o, const char *key);
/* How many elements @o has; 0: it is no array. */
size_t zns_json_len(struct json_object *o);

#endif
