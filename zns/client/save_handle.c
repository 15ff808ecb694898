/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes the handle of a committed checkpoint, and keeps the list of the plain copies that it names
 * (design.md §6). */
#include <stdlib.h>
#include <string.h>
#include "zns/handle.h"
#include "zns/save.h"

#define STEP 64 /* entries by which the list of copies grows */

int zns_save_copy(struct zns_save *v, const char *name, uint64_t size, uint64_t hash,
		  struct zns_err *err)
{
	ZnsPb__HandleCopy *k = v->copies;

	if (!(v->nr_copies % STEP)) {
		k = realloc(k, (v->nr_copies + STEP) * sizeof(*k));
		if (!k)
			return zns_fail(err, -ENOMEM, "no memory for the handle");
		v->copies = k;
	}
	k += v->nr_copies++;
	zns_pb__handle_copy__init(k);
	k->name = (char *)name;
	k->size = size;
	k->hash = hash;
	return 0;
}

int zns_save_handle(struct zns_save *v, int dirfd, struct zns_err *err)
{
	cleanup_free ZnsPb__HandleCopy **list = calloc(v->nr_copies + 1, sizeof(*list));
	ZnsPb__Handle h = ZNS_PB__HANDLE__INIT;
	struct zns_handle_seal seal;
	int ret;

	if (!list)
		return zns_fail(err, -ENOMEM, "no memory for the handle");
	for (size_t i = 0; i < v->nr_copies; i++)
		list[i] = &v->copies[i];
	h.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, v->s->reg.uuid };
	h.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, v->id };
	zns_handle_describe(&h, v->c);
	h.copies = list;
	h.n_copies = v->nr_copies;
	if (v->sealed && !v->proof)
		zns_crypt_name_key(v->c->crypt, &h, &seal);
	ret = zns_crypt_seal_handle(v->sealed ? v->proof : v->crypt, v->c, zns_writer_seal(v->w),
				    &h, &seal, err);
	return ret ? ret : zns_handle_write(dirfd, &h, err);
}
