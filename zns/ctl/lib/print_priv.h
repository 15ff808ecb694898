/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_PRINT_PRIV_H
#define ZNS_CTL_PRINT_PRIV_H
/* For print_fields.c and print_table.c: finds a field by its path. */
#include "print.h"

/*
 * Finds the field with the path @path ("a" or "a.b"). *m becomes the message that contains it, or
 * NULL if that message is absent.
 */
const ProtobufCFieldDescriptor *print_find(const ProtobufCMessageDescriptor *d, const char **m,
					   const char *path);
bool print_present(const ProtobufCFieldDescriptor *f, const char *m);
/* The value of a field of type integer or bool. */
int64_t print_number(const ProtobufCFieldDescriptor *f, const char *p);

/*
 * Writes the first character of @s, escaped if it would control a terminal. Returns its length in
 * @s.
 */
size_t print_character(const char *s, char out[8]);

#endif
