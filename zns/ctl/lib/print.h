/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_PRINT_H
#define ZNS_CTL_PRINT_H
/* Output of commands: JSON from the fields of a message, other JSON, and tables. */
#include <json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "zns-broker.pb-c.h"

/*
 * print_fields.c: prints a message as JSON. @fields lists the members in their order, separated by
 * blanks:
 *
 *   name           the field of that name; null if it is optional and absent
 *   name?          left out if absent
 *   name!          its default value if absent
 *   key=a.b        another name for the field; a.b is field b of the message in field a
 *   key=           null, for the caller to set later
 *   name{x y}      these members of the message in the field, or of each one if it is repeated
 *   key={x y}      an object of these members of the same message
 *   name:time      nanoseconds as a time
 *   name:state     a zone's state
 *   name:pos       null if 0
 *   name:set       whether the field is present
 *   name:zones     for zone_use messages: the numbers of the zones
 *   name:pages     for a checkpoint's pages_only: its state
 *
 * Fields of bytes are UUIDs or fingerprints of keys, and are printed as text. For ctl_json_add() @m
 * may be NULL: then all fields are absent. @fields is parsed once and kept, so it must stay valid
 * until the program ends.
 */
struct json_object *ctl_json(const void *m, const char *fields);
void ctl_json_add(struct json_object *j, const ProtobufCMessageDescriptor *d, const void *m,
		  const char *fields);
/* Makes an array with the JSON of each of @n messages. */
struct json_object *ctl_json_all(void *const *m, size_t n, const char *fields);
extern const char ctl_checkpoint_fields[], ctl_restore_fields[];
struct json_object *ctl_json_checkpoint(const ZnsPb__Checkpoint *c);

/*
 * print_json.c: makes an object from pairs: ctl_obj(J("name", name), J("bytes", bytes),
 * JB("intact", !bad)). A NULL text becomes null.
 */
#define ctl_obj(...) ctl_json_pairs(__VA_ARGS__, (const char *)NULL)
struct json_object *ctl_json_pairs(const char *key, ...) __attribute__((sentinel));
#define J(key, v) \
	(key), _Generic((v), char *: ctl_j_text, const char *: ctl_j_text, struct json_object *: ctl_j_self, \
	bool: ctl_j_bool, float: ctl_j_double, double: ctl_j_double, unsigned long: ctl_j_uint, unsigned long long: ctl_j_uint, \
	default: ctl_j_int)(v)
/* for booleans: in C a comparison is an int, which J() would print as a number */
#define JB(key, v) (key), ctl_j_bool(v)
#define JNULL(key) (key), ctl_j_self(NULL)
/* Appends the members of @more to @j. */
struct json_object *ctl_json_join(struct json_object *j, struct json_object *more);
struct json_object *ctl_j_text(const char *s);
struct json_object *ctl_j_self(struct json_object *o);
struct json_object *ctl_j_bool(bool b);
struct json_object *ctl_j_int(int64_t v);
struct json_object *ctl_j_uint(uint64_t v);
struct json_object *ctl_j_double(double v);
struct json_object *ctl_json_time(int64_t ns);
struct json_object *ctl_json_uuid(const uint8_t *id);
struct json_object *ctl_json_u32s(const uint32_t *v, size_t nr);
struct json_object *ctl_json_leases(const ZnsPb__Status *s);
struct json_object *ctl_json_zones(const ZnsPb__Status *s); /* how many zones are in each state */

/* Prints and frees the object. Returns CTL_OK. */
int ctl_print_json(struct json_object *o);
/* prints an object with this list as its only member */
int ctl_print_list(const char *key, struct json_object *list);
void ctl_write_json(FILE *f, struct json_object *o);
/*
 * print_fields.c: like ctl_print_list(), but prints one message at a time without json-c objects,
 * so that a long list is quick and needs no memory. Print nothing else between begin and end.
 */
struct ctl_list {
	size_t nr;
	struct out *out;
};
void ctl_list_begin(struct ctl_list *l, const char *key);
/*
 * Prints the members of @m that @fields lists, then flags: pairs of a name and a bool, terminated
 * by NULL.
 */
void ctl_list_add(struct ctl_list *l, const void *m, const char *fields, const char *flag, ...)
	__attribute__((sentinel));
void ctl_list_end(struct ctl_list *l);

/* print_table.c: prints a table by a list of columns. */
#define CTL_COLUMNS_END             \
	{                           \
		NULL, 0, NULL, NULL \
	}
struct ctl_column {
	const char *heading;
	int width; /* in characters; negative: aligned left; 0: the last column, of any width */
	/*
	 * A field of the row's message, with :size, :time, :state, or :name (one word of a table).
	 * NULL: @cell makes the text.
	 */
	const char *field;
	void (*cell)(const void *row, const void *arg, char *out, size_t len);
};
#define CTL_ROW 4096
/* Formats one line into @out, CTL_ROW bytes. @row NULL: the headings. */
char *ctl_row(const struct ctl_column *columns, const char *gap, const void *row, const void *arg,
	      char *out);

#endif
