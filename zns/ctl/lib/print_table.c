/* SPDX-License-Identifier: GPL-2.0-only */
/* Prints tables. A column shows a field of the row's message, or the text of a function. */
#include <string.h>
#include "ctl.h"
#include "print_priv.h"

static void field_text(const struct ctl_column *c, const void *row, char *out, size_t len)
{
	const char *m = row, *how = strchr(c->field, ':'), *p;
	const ProtobufCFieldDescriptor *f;
	char id[ZNS_UUID_STR] = "?", path[64];

	how = how ? how + 1 : "";
	snprintf(path, sizeof(path), "%.*s", (int)strcspn(c->field, ":"), c->field);
	f = print_find(((const ProtobufCMessage *)row)->descriptor, &m, path);
	p = m + f->offset;
	if (f->type == PROTOBUF_C_TYPE_BYTES) {
		if (((const ProtobufCBinaryData *)p)->len == ZNS_UUID_LEN)
			zns_uuid_format(((const ProtobufCBinaryData *)p)->data, id);
		snprintf(out, len, "%.*s", abs(c->width), id);
	} else if (f->type == PROTOBUF_C_TYPE_STRING) {
		if (!strcmp(how, "name"))
			ctl_name(*(char *const *)p, out, len);
		else
			snprintf(out, len, "%s", *(char *const *)p);
	} else if (!strcmp(how, "time")) {
		zns_format_time(print_number(f, p), out, len);
	} else if (!strcmp(how, "size")) {
		zns_format_size((uint64_t)print_number(f, p), out, len);
	} else if (!strcmp(how, "state")) {
		snprintf(out, len, "%s",
			 zns_zone_state_name((enum zns_zone_state)print_number(f, p)));
	} else {
		snprintf(out, len, "%lld", (long long)print_number(f, p));
	}
}

char *ctl_row(const struct ctl_column *c, const char *gap, const void *row, const void *arg,
	      char *out)
{
	char text[CTL_NAME];
	size_t n = 0;

	for (*out = 0; c->heading && n < CTL_ROW; c++) {
		if (!row)
			snprintf(text, sizeof(text), "%s", c->heading);
		else if (c->cell)
			c->cell(row, arg, text, sizeof(text));
		else
			field_text(c, row, text, sizeof(text));
		n += (size_t)snprintf(out + n, CTL_ROW - n, "%*s%s", c->width, text,
				      c[1].heading ? gap : "");
	}
	return out;
}
