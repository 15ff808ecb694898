/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads JSON that other programs wrote: see zns/json.h. */
#include <fcntl.h>
#include <string.h>

#include "zns/json.h"
#include "zns/util.h"

int zns_json_parse(const char *path, const uint8_t *text, size_t len, struct json_object **out,
		   struct zns_err *err)
{
	struct json_tokener *tok = json_tokener_new();
	enum json_tokener_error jerr;
	size_t end;

	*out = NULL;
	if (!tok)
		return zns_fail(err, -ENOMEM, "no memory to read %s", path);
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
	/* the NUL is passed to the parser too, because it ends a number at the end of the text */
	*out = json_tokener_parse_ex(tok, (const char *)text, (int)len + 1);
	jerr = json_tokener_get_error(tok);
	end = json_tokener_get_parse_end(tok);
	json_tokener_free(tok);
	while (end < len && strchr(" \t\r\n", text[end]))
		end++;
	if (jerr == json_tokener_success && end >= len)
		return 0;
	json_object_put(*out);
	*out = NULL;
	return zns_fail(err, -EBADMSG, "%s is not valid JSON (%s, at byte %zu): correct it first",
			path,
			jerr == json_tokener_success ? "text after its end" :
						       json_tokener_error_desc(jerr),
			end);
}

int zns_json_read(const char *path, struct json_object **out, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;
	int ret = zns_read_file(AT_FDCWD, path, ZNS_JSON_MAX, &text, &len);

	*out = NULL;
	return ret ? zns_fail_sys(err, ret, "cannot read %s", path) :
		     zns_json_parse(path, text, len, out, err);
}

struct json_object *zns_json_get(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return o && json_object_is_type(o, json_type_object) &&
			       json_object_object_get_ex(o, key, &v) ?
		       v :
		       NULL;
}

const char *zns_json_str(struct json_object *o, const char *key)
{
	struct json_object *v = zns_json_get(o, key);

	/* A string with a NUL inside would be taken for a shorter one. */
	return v && json_object_is_type(v, json_type_string) &&
			       strlen(json_object_get_string(v)) ==
				       (size_t)json_object_get_string_len(v) ?
		       json_object_get_string(v) :
		       NULL;
}

size_t zns_json_len(struct json_object *o)
{
	return json_object_is_type(o, json_type_array) ? json_object_array_length(o) : 0;
}
