/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads a checkpoint under a restore lease, so that its zones are not reset while a command reads
 * it.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "ctl.h"
#include "zns/crypt.h"
#include "zns/handle.h"
#include "zns/store.h"

int ctl_session_open(struct zns_session *s, const char *spec, unsigned use, struct zns_err *err)
{
	struct zns_registered reg;
	int ret;

	*s = (struct zns_session)ZNS_SESSION_INIT;
	ret = zns_resolve_device(spec, &reg, err);
	return ret ? ret : zns_session_open(s, &reg, use, err);
}

int ctl_ls(struct zns_broker *b, ZnsPb__Response **out, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	req.has_ls = req.ls = 1;
	return ctl_marks_sort(zns_broker_call(b, &req, out, err), out);
}

static int cmp_marks(const void *pa, const void *pb)
{
	const ProtobufCBinaryData *a = &(*(ZnsPb__Mark *const *)pa)->checkpoint,
				  *b = &(*(ZnsPb__Mark *const *)pb)->checkpoint;

	return a->len != b->len ? (a->len < b->len ? -1 : 1) : memcmp(a->data, b->data, a->len);
}

int ctl_marks_sort(int ret, ZnsPb__Response **ls)
{
	if (!ret && (*ls)->n_marks)
		qsort((*ls)->marks, (*ls)->n_marks, sizeof(*(*ls)->marks), cmp_marks);
	return ret;
}

const ZnsPb__Mark *ctl_mark_of(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c)
{
	const ZnsPb__Mark key = { .checkpoint = c->id }, *k = &key;
	ZnsPb__Mark **m = ls->n_marks ? bsearch(&k, ls->marks, ls->n_marks, sizeof(*ls->marks),
						cmp_marks) :
					NULL;

	return m ? *m : NULL;
}

bool ctl_pinned(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c)
{
	const ZnsPb__Mark *m = ctl_mark_of(ls, c);

	return m && m->pinned;
}

bool ctl_damaged(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c)
{
	const ZnsPb__Mark *m = ctl_mark_of(ls, c);

	return m && m->has_damaged_ns;
}

bool ctl_is_dir(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

const ZnsPb__Checkpoint *ctl_next_child(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c,
					size_t *at)
{
	while (*at < ls->n_checkpoints) {
		const ZnsPb__Checkpoint *k = ls->checkpoints[(*at)++];

		if (k->has_parent && k->parent.len == c->id.len &&
		    !memcmp(k->parent.data, c->id.data, c->id.len))
			return k;
	}
	return NULL;
}

int ctl_handle_read(const char *dir, int *fd, ZnsPb__Handle **out, struct zns_err *err)
{
	cleanup_close int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret;

	*out = NULL;
	if (at < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", dir);
	ret = zns_handle_read(at, out, err);
	if (ret)
		return zns_wrap(err, "%s", dir);
	if (fd)
		*fd = zns_take_fd(&at);
	return 0;
}

int ctl_handle_ids(const char *dir, char *dev, char *id, ZnsPb__Handle **out, struct zns_err *err)
{
	int ret = ctl_handle_read(dir, NULL, out, err);

	if (ret)
		return ret;
	zns_uuid_format((*out)->checkpoint.data, id);
	zns_uuid_format((*out)->device.data, dev);
	return 0;
}

int ctl_hold_open(struct ctl_hold *h, const char *spec, const char *what, struct zns_err *err)
{
	char dev_id[ZNS_UUID_STR], id_text[ZNS_UUID_STR];
	uint8_t id[ZNS_UUID_LEN];
	struct stat st;
	int ret = 0;

	*h = (struct ctl_hold){ .s = ZNS_SESSION_INIT };
	if (!stat(what, &st) && S_ISDIR(st.st_mode)) {
		ret = ctl_handle_ids(what, dev_id, id_text, &h->handle, err);
		what = id_text;
		if (!spec)
			spec = dev_id;
	}
	if (!ret)
		ret = ctl_session_open(&h->s, spec, ZNS_READS, err);
	if (!ret)
		ret = zns_broker_resolve_id(&h->s.broker, what, id, err);
	if (!ret)
		ret = zns_session_lease(&h->s, id, false, &h->answer, err);
	if (!ret) {
		h->c = h->answer->checkpoints[0];
		ret = h->handle ? zns_handle_agrees(h->handle, h->c, err) : 0;
	}
	if (!ret)
		ret = zns_manifest_read(h->s.dev, h->c, &h->m, err);
	/*
	 * only checks whether both say that the checkpoint is encrypted; ctl_hold_key() loads the
	 * key
	 */
	if (!ret && h->handle)
		ret = zns_crypt_check_handle(NULL, h->handle, h->m, err);
	if (ret)
		ctl_hold_close(h);
	return ret;
}

int ctl_hold_key(struct ctl_hold *h, struct zns_err *err)
{
	int ret = zns_crypt_of(&h->s.reg, h->s.broker.encrypted, h->m, &h->crypt, err);

	if (!ret && h->handle)
		ret = zns_crypt_check_handle(h->crypt, h->handle, h->m, err);

	if (h->crypt)
		zns_crypt_harden();
	return ret;
}

void ctl_hold_close(struct ctl_hold *h)
{
	zns_crypt_free(h->crypt);
	h->crypt = NULL;
	if (h->m)
		zns_pb__manifest__free_unpacked(h->m, NULL);
	if (h->answer)
		zns_pb__response__free_unpacked(h->answer, NULL);
	if (h->handle)
		zns_pb__handle__free_unpacked(h->handle, NULL);
	h->handle = NULL;
	zns_session_close(&h->s);
	h->m = NULL;
	h->answer = NULL;
	h->c = NULL;
}
