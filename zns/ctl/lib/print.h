/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_PRINT_H
#define ZNS_CTL_PRINT_H
/* Output of commands: JSON from the fields of a message, other JSON as one expression, and
 * tables. */
#include <json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "zns-broker.pb-c.h"

/*
 * print_fields.c: a message as JSON. @fields names the members in their order, with blanks between
 * them:
 *
 *   name           the field of that name. An optional one that is absent is null
 *   name?          left out if absent
 *   name!          its default if absent
 *   key=a.b        under another name; of a message inside
 *   key=           null, for the caller to set afterwards
 *   name{x y}      of a message, or of each of several: these members
 *   key={x y}      an object of these members of the same message
 *   name:time      nanoseconds as a time; :state a zone's state; :pos null if 0; :set whether it is
 * there; :zones of zone_use messages the numbers of the zones; :pages of a checkpoint's pages_only
 * its state
 *
 * UUIDs and fingerprints of keys are bytes, and become text. @m may be NULL for ctl_json_add: then
 * nothing is there. @fields must stay as it is until the program ends: it is parsed once.
 */
struct json_object *ctl_json(const void *m, const char *fields);
void ctl_json_add(struct json_object *j, const ProtobufCMessageDescriptor *d, const void *m,
		  const char *fields);
/* An array with ctl_json of each of @n messages. */
struct json_object *ctl_json_all(void *const *m, size_t n, const char *fields);
extern const char ctl_checkpoint_fields[], ctl_restore_fields[];
struct json_object *ctl_json_checkpoint(const ZnsPb__Checkpoint *c);

/* print_json.c: ctl_obj(J("name", name), J("bytes", bytes), JB("intact", !bad)). A NULL text
 * becomes null. */
#define ctl_obj(...) ctl_json_pairs(__VA_ARGS__, (const char *)NULL)
struct json_object *ctl_json_pairs(const char *key, ...) __attribute__((sentinel));
#define J(key, v) \
	(key), _Generic((v), char *: ctl_j_text, const char *: ctl_j_text, struct json_object *: ctl_j_self, \
	bool: ctl_j_bool, float: ctl_j_double, double: ctl_j_double, unsigned long: ctl_j_uint, unsigned long long: ctl_j_uint, \
	default: ctl_j_int)(v)
#define JB(key, v) (key), ctl_j_bool(v) /* in C a comparison is an int */
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
struct json_object *ctl_json_leases(const ZnsPb__Status *s); /* in the form that status prints */
struct json_object *ctl_json_zones(const ZnsPb__Status *s); /* how many zones are in each state */

/* Prints and frees. Returns CTL_OK. */
int ctl_print_json(struct json_object *o);
int ctl_print_list(const char *key, struct json_object *list); /* as the only member of an object */
void ctl_write_json(FILE *f, struct json_object *o);
/* print_fields.c: like ctl_print_list, but one message at a time and without json-c objects: a long
 * list is printed quickly, and not kept in memory. Nothing else may be printed between begin and
 * end. */
struct ctl_list {
	size_t nr;
	struct out *out;
};
void ctl_list_begin(struct ctl_list *l, const char *key);
/* Prints the members of @m that @fields names, then flags: pairs of a name and a bool, ended by NULL. */
void ctl_list_add(struct ctl_list *l, const void *m, const char *fields, const char *flag, ...)
	__attribute__((sentinel));
void ctl_list_end(struct ctl_list *l);

/* print_table.c: a table from a list of columns. */
#define CTL_COLUMNS_END             \
	{                           \
		NULL, 0, NULL, NULL \
	}
struct ctl_column {
	const char *heading;
	int width; /* negative: aligned left; 0: the last column, of any width */
	/* A field of the row's message, with :size, :time, :state or :name (one word of a
	 * table). NULL: use @cell. */
	const char *field;
	void (*cell)(const void *row, const void *arg, char *out, size_t len);
};
#define CTL_ROW 4096
/* Writes one line to @out, CTL_ROW bytes. @row NULL: the headings. */
char *ctl_row(const struct ctl_column *columns, const char *gap, const void *row, const void *arg,
	      char *out);

#endif
