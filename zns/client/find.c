/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Finds a checkpoint by its id, or by the first digits of the id. */
#include <ctype.h>
#include <string.h>
#include "zns/client.h"

#define DIGITS (2 * ZNS_UUID_LEN)
#define NAMED 4 /* most checkpoints that the message lists */

/* Copies the hexadecimal digits of @text without dashes. Returns their number, or -EINVAL: @text is
 * not the beginning of an id. */
static int digits_of(const char *text, char out[DIGITS + 1])
{
	int n = 0;

	for (; *text; text++) {
		if (*text == '-')
			continue;
		if (!isxdigit((unsigned char)*text) || n == DIGITS)
			return -EINVAL;
		out[n++] = (char)tolower((unsigned char)*text);
	}
	out[n] = 0;
	return n;
}

static bool begins_with(const ZnsPb__Checkpoint *c, const char *digits, int n)
{
	char id[ZNS_UUID_STR], all[DIGITS + 1];

	return c->id.len == ZNS_UUID_LEN &&
	       digits_of(zns_uuid_format(c->id.data, id), all) == DIGITS &&
	       !strncmp(all, digits, n);
}

static int ambiguous(const ZnsPb__Response *ls, const char *text, const char *digits, int n,
		     size_t nr, struct zns_err *err)
{
	char list[NAMED * (ZNS_UUID_STR + 2) + 32] = "", id[ZNS_UUID_STR];
	size_t at = 0, named = 0;

	for (size_t i = 0; i < ls->n_checkpoints && named < NAMED; i++)
		if (begins_with(ls->checkpoints[i], digits, n))
			at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s",
					       named++ ? ", " : "",
					       zns_uuid_format(ls->checkpoints[i]->id.data, id));
	if (nr > named)
		snprintf(list + at, sizeof(list) - at, " and %zu more", nr - named);
	return zns_fail(err, -ENOTUNIQ,
			"%zu checkpoints have an id that begins with %s, give more of it: %s", nr,
			text, list);
}

int zns_find_checkpoint(const ZnsPb__Response *ls, const char *text, const ZnsPb__Checkpoint **out,
			struct zns_err *err)
{
	char digits[DIGITS + 1];
	int n = digits_of(text, digits);
	size_t nr = 0;

	*out = NULL;
	if (n < 0 || !n)
		return zns_fail(err, -ENOENT, "no checkpoint %s: `znsctl ls` lists them", text);
	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		if (!begins_with(ls->checkpoints[i], digits, n))
			continue;
		*out = ls->checkpoints[i];
		nr++;
	}
	if (n >= ZNS_ID_MIN && nr == 1)
		return 0;
	*out = NULL;
	if (n >= ZNS_ID_MIN && nr)
		return ambiguous(ls, text, digits, n, nr, err);
	return nr ? zns_fail(err, -ENOENT,
			     "%s is too short for an id: give %d digits of it at least", text,
			     ZNS_ID_MIN) :
		    zns_fail(err, -ENOENT, "no checkpoint %s: `znsctl ls` lists them", text);
}

int zns_broker_resolve_id(struct zns_broker *b, const char *text, uint8_t id[ZNS_UUID_LEN],
			  struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	const ZnsPb__Checkpoint *c;
	ZnsPb__Response *ls;
	int ret;

	/* A complete id is not looked up: it may be that of a removed checkpoint, and then the next
	 * request tells the caller when and by whom it was removed. */
	if (!zns_uuid_parse(text, id))
		return 0;
	req.has_ls = req.ls = 1;
	ret = zns_broker_call(b, &req, &ls, err);
	if (ret)
		return ret;
	ret = zns_find_checkpoint(ls, text, &c, err);
	if (!ret)
		memcpy(id, c->id.data, ZNS_UUID_LEN);
	zns_pb__response__free_unpacked(ls, NULL);
	return ret;
}
