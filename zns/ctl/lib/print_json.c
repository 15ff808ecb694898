/* SPDX-License-Identifier: GPL-2.0-only */
/* JSON that comes from no message, and the output of JSON: its text must mean nothing to a
 * terminal. */
#include <string.h>
#include "ctl.h"

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

/* Writes one character, escaped if needed. Returns its length in bytes. */
static size_t put_character(FILE *f, const char *s)
{
	size_t n = 1;
	char one[5] = "";

	if (*s == 0x7f)
		return fprintf(f, "\\u007f"), 1;
	while (n < 4 && ((unsigned char)s[n] & 0xc0) == 0x80)
		n++;
	memcpy(one, s, n);
	if (zns_is_printable(one)) {
		fputs(one, f);
		return n;
	}
	/* C1 and similar characters are two or three bytes of valid UTF-8. Invalid bytes are
	 * replaced one by one. */
	if (n == 2 && (unsigned char)s[0] == 0xc2)
		fprintf(f, "\\u%04x", (unsigned char)s[1]);
	else if (n == 3 && (unsigned char)s[0] >= 0xe2 && (unsigned char)s[0] != 0xed)
		fprintf(f, "\\u%04x", (s[0] & 0xf) << 12 | (s[1] & 0x3f) << 6 | (s[2] & 0x3f));
	else
		return fprintf(f, "\\ufffd"), 1;
	return n;
}

/* The library escapes only as JSON demands. It passes on invalid UTF-8 and what a terminal would
 * obey. Lines after the first begin with @indent. */
static void put_json(FILE *f, const char *s, const char *indent)
{
	size_t deep = strlen(indent);

	for (; *s; s++) {
		const char *end = s;

		while (*end && *end != '\n' && (unsigned char)*end < 0x7f)
			end++;
		fwrite_unlocked(s, 1, (size_t)(end - s), f);
		if (!*end)
			break;
		if (*end == '\n') {
			putc_unlocked('\n', f);
			fwrite_unlocked(indent, 1, deep, f);
			s = end;
		} else {
			s = end + put_character(f, end) - 1;
		}
	}
}

static void put_object(FILE *f, struct json_object *o, const char *indent)
{
	put_json(f,
		 json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
							   JSON_C_TO_STRING_SPACED |
							   JSON_C_TO_STRING_NOSLASHESCAPE),
		 indent);
	json_object_put(o);
}

void ctl_write_json(FILE *f, struct json_object *o)
{
	put_object(f, o, "");
	fputc('\n', f);
}

void ctl_list_begin(struct ctl_list *l, const char *key)
{
	l->nr = 0;
	printf("{\n  \"%s\": [", key);
}

void ctl_list_add(struct ctl_list *l, struct json_object *o)
{
	fputs(l->nr++ ? ",\n    " : "\n    ", stdout);
	put_object(stdout, o, "    ");
}

void ctl_list_end(const struct ctl_list *l)
{
	fputs(l->nr ? "\n  ]\n}\n" : "]\n}\n", stdout);
}

int ctl_print_json(struct json_object *o)
{
	ctl_write_json(stdout, o);
	return CTL_OK; /* main reports a write error */
}

int ctl_print_list(const char *key, struct json_object *list)
{
	return ctl_print_json(ctl_json_pairs(key, list, (const char *)NULL));
}
