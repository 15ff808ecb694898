/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opens a store and looks things up in it. Changes are in change.c. */
#include <string.h>
#include "kinds.h"

struct zns_store *zns_store_alloc(struct zns_dev *dev, unsigned flags, struct zns_err *err)
{
	struct zns_store *s = calloc(1, sizeof(*s));

	if (!s) {
		zns_fail(err, -ENOMEM, "no memory for a store");
		return NULL;
	}
	s->dev = dev;
	s->flags = flags;
	return s;
}

static int open_once(struct zns_dev *dev, unsigned flags, struct zns_store **out,
		     struct zns_err *err)
{
	struct zns_store *s = zns_store_alloc(dev, flags, err);
	int ret;

	if (!s)
		return -ENOMEM;
	ret = zns_store_meta_range(dev, &s->first_meta, &s->nr_meta, err);
	if (!ret)
		ret = zns_store_replay(s, err);
	if (!ret && s->need_roll && !(flags & ZNS_STORE_RDONLY)) {
		ret = zns_store_roll(s, 0, err);
		if (ret)
			zns_wrap(err, "cannot begin a new metadata generation");
	}
	if (ret) {
		zns_store_close(s);
		return ret;
	}
	zns_store_remember(s);
	*out = s;
	return 0;
}

int zns_store_open(struct zns_dev *dev, unsigned flags, struct zns_store **out, struct zns_err *err)
{
	int ret, tries = flags & ZNS_STORE_RDONLY ? 3 : 1;

	/* If another process rolls over meanwhile, a zone may be reset while it is read. So an
	 * error is reported only if it persists. */
	do
		ret = open_once(dev, flags, out, err);
	while ((ret == -EBADMSG || ret == -ENODATA || ret == -ENOMEDIUM) && --tries);
	return ret;
}

void zns_store_close(struct zns_store *s)
{
	if (!s)
		return;
	zns_state_fini(&s->st);
	zns_log_fini(&s->log);
	zns_ent_free(s->claim);
	free(s->seen_wp);
	free(s);
}

const uint8_t *zns_store_uuid(const struct zns_store *s)
{
	return s->uuid;
}

uint64_t zns_store_generation(const struct zns_store *s)
{
	return s->log.generation;
}

uint32_t zns_store_nr_meta(const struct zns_store *s)
{
	return s->nr_meta;
}

bool zns_store_torn(const struct zns_store *s)
{
	return s->torn;
}

const ProtobufCMessage *zns_store_record(const struct zns_store *s, uint16_t type, size_t i)
{
	const struct zns_kind *k = zns_kind_of(type);
	const struct zns_list *l = k ? zns_kind_list(k, &s->st) : NULL;

	return l && i < l->nr ? l->v[i]->msg : NULL;
}

const ZnsPb__Profile *zns_store_profile(const struct zns_store *s)
{
	return zns_newest(&s->st.profile);
}

size_t zns_store_nr_checkpoints(const struct zns_store *s)
{
	return s->st.checkpoints.nr;
}

const ZnsPb__Checkpoint *zns_store_checkpoint(const struct zns_store *s, size_t i)
{
	return i < s->st.checkpoints.nr ? s->st.checkpoints.v[i]->ckpt : NULL;
}

const ZnsPb__Checkpoint *zns_store_find(const struct zns_store *s, const uint8_t *id)
{
	const struct zns_ent *e = zns_state_find(&s->st, id);

	return e ? e->ckpt : NULL;
}

const ZnsPb__Tombstone *zns_store_find_tombstone(const struct zns_store *s, const uint8_t *id)
{
	const struct zns_ent *e = zns_state_find_dead(&s->st, id);

	return e ? e->tomb : NULL;
}

size_t zns_store_nr_reservations(const struct zns_store *s)
{
	return s->st.reservations.nr;
}

const ZnsPb__Reservation *zns_store_reservation(const struct zns_store *s, size_t i)
{
	return i < s->st.reservations.nr ? s->st.reservations.v[i]->resv : NULL;
}

const ZnsPb__Reservation *zns_store_find_reservation(const struct zns_store *s,
						     const char *container)
{
	const struct zns_owner *o = zns_state_owner(&s->st, container);

	return o && o->reservation ? o->reservation->resv : NULL;
}

uint64_t zns_store_zone_live(const struct zns_store *s, uint32_t zone)
{
	return zone < s->st.lim.nr_zones ? zns_state_live(&s->st, zone) : 0;
}

const ZnsPb__ZoneUse *zns_store_zone_memory(const struct zns_store *s, uint32_t zone)
{
	return zone < s->st.lim.nr_zones ? s->st.memory[zone] : NULL;
}

uint64_t zns_store_zone_packed(const struct zns_store *s, uint32_t zone)
{
	return zone < s->st.lim.nr_zones ? s->st.packed[zone] : 0;
}

size_t zns_store_zone_ranges(const struct zns_store *s, uint32_t zone, struct zns_range *out,
			     size_t max)
{
	const struct zns_zone_place *p = zone < s->st.lim.nr_zones ? s->st.places[zone] : NULL;
	size_t n = 0;

	for (; p; p = p->next, n++)
		if (n < max)
			out[n] = (struct zns_range){ p->use->start, p->use->start + p->use->len };
	return n;
}

const char *zns_store_zone_owner(const struct zns_store *s, uint32_t zone)
{
	return zone < s->st.lim.nr_zones && s->st.zone_owner[zone] ? s->st.zone_owner[zone]->name :
								     NULL;
}

size_t zns_store_nr_retentions(const struct zns_store *s)
{
	return s->st.retentions.nr;
}

const ZnsPb__Retention *zns_store_retention(const struct zns_store *s, size_t i)
{
	return i < s->st.retentions.nr ? s->st.retentions.v[i]->retn : NULL;
}

const ZnsPb__Retention *zns_store_find_retention(const struct zns_store *s, const char *container)
{
	const struct zns_owner *o = zns_state_owner(&s->st, container);

	return o && o->retention ? o->retention->retn : NULL;
}

size_t zns_store_nr_marks(const struct zns_store *s)
{
	return s->st.marks.nr;
}

const ZnsPb__Mark *zns_store_mark(const struct zns_store *s, size_t i)
{
	return i < s->st.marks.nr ? s->st.marks.v[i]->markm : NULL;
}

const ZnsPb__Mark *zns_store_find_mark(const struct zns_store *s, const uint8_t *id)
{
	const struct zns_ent *e = zns_state_find(&s->st, id);

	return e && e->mark ? e->mark->markm : NULL;
}

const ZnsPb__FirstPages *zns_store_find_first(const struct zns_store *s, const uint8_t *id)
{
	const struct zns_ent *e = zns_state_find(&s->st, id);

	return e && e->first ? e->first->firstp : NULL;
}
