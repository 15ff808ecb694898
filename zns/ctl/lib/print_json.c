/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes JSON that does not come from a message, and prints JSON: control characters in its text are
 * escaped, since they would control a terminal.
 */
#include <string.h>
#include "ctl.h"
#include "print_priv.h"

struct json_object *ctl_j_text(const char *s)
{
	return s ? json_object_new_string(s) : NULL;
}

struct json_object *ctl_j_self(struct json_object *o)
{
	return o;
}

struct json_object *ctl_j_bool(bool b)
{
	return json_object_new_boolean(b);
}

struct json_object *ctl_j_int(int64_t v)
{
	return json_object_new_int64(v);
}

struct json_object *ctl_j_uint(uint64_t v)
{
	return json_object_new_uint64(v);
}

struct json_object *ctl_j_double(double v)
{
	return json_object_new_double(v);
}

struct json_object *ctl_json_pairs(const char *key, ...)
{
	struct json_object *j = json_object_new_object();
	va_list ap;

	va_start(ap, key);
	for (; key; key = va_arg(ap, const char *))
		json_object_object_add(j, key, va_arg(ap, struct json_object *));
	va_end(ap);
	return j;
}

struct json_object *ctl_json_join(struct json_object *j, struct json_object *more)
{
	json_object_object_foreach(more, key, value)
		json_object_object_add(j, key, json_object_get(value));
	json_object_put(more);
	return j;
}

struct json_object *ctl_json_uuid(const uint8_t *id)
{
	char s[ZNS_UUID_STR];

	return json_object_new_string(zns_uuid_format(id, s));
}

struct json_object *ctl_json_time(int64_t ns)
{
	char s[32];

	return json_object_new_string(zns_format_time(ns, s, sizeof(s)));
}

struct json_object *ctl_json_u32s(const uint32_t *v, size_t nr)
{
	struct json_object *a = json_object_new_array();
	size_t i;

	for (i = 0; i < nr; i++)
		json_object_array_add(a, json_object_new_int64(v[i]));
	return a;
}

struct json_object *ctl_json_zones(const ZnsPb__Status *s)
{
	static const enum zns_zone_state states[] = { ZNS_ZONE_EMPTY,     ZNS_ZONE_IMP_OPEN,
						      ZNS_ZONE_CLOSED,    ZNS_ZONE_FULL,
						      ZNS_ZONE_READ_ONLY, ZNS_ZONE_OFFLINE };
	struct json_object *j = json_object_new_object();

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(states); i++)
		json_object_object_add(j, zns_zone_state_name(states[i]),
				       json_object_new_int64(ctl_zones_in(s, states[i])));
	return j;
}

size_t print_character(const char *s, char out[8])
{
	size_t n = 1;

	if (*s == 0x7f)
		return strcpy(out, "\\u007f"), 1;
	while (n < 4 && ((unsigned char)s[n] & 0xc0) == 0x80)
		n++;
	snprintf(out, 8, "%.*s", (int)n, s);
	if (zns_is_printable(out))
		return n;
	/*
	 * C1 controls and similar characters are two or three bytes of valid UTF-8. Of invalid
	 * UTF-8, each byte is replaced.
	 */
	if (n == 2 && (unsigned char)s[0] == 0xc2)
		snprintf(out, 8, "\\u%04x", (unsigned char)s[1]);
	else if (n == 3 && (unsigned char)s[0] >= 0xe2 && (unsigned char)s[0] != 0xed)
		snprintf(out, 8, "\\u%04x",
			 (s[0] & 0xf) << 12 | (s[1] & 0x3f) << 6 | (s[2] & 0x3f));
	else
		return strcpy(out, "\\ufffd"), 1;
	return n;
}

/*
 * Prints JSON text. json-c escapes only what JSON demands, but leaves invalid UTF-8 and characters
 * that control a terminal as they are.
 */
static void put_json(FILE *f, const char *s)
{
	for (; *s; s++) {
		const char *end = s;

		char esc[8];

		while (*end && (unsigned char)*end < 0x7f)
			end++;
		fwrite_unlocked(s, 1, (size_t)(end - s), f);
		if (!*end)
			break;
		s = end + print_character(end, esc) - 1;
		fputs(esc, f);
	}
}

void ctl_write_json(FILE *f, struct json_object *o)
{
	put_json(f, json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
							      JSON_C_TO_STRING_SPACED |
							      JSON_C_TO_STRING_NOSLASHESCAPE));
	fputc('\n', f);
	json_object_put(o);
}

int ctl_print_json(struct json_object *o)
{
	ctl_write_json(stdout, o);
	return CTL_OK; /* ctl_end() reports a write error */
}

int ctl_print_list(const char *key, struct json_object *list)
{
	return ctl_print_json(ctl_json_pairs(key, list, (const char *)NULL));
}
