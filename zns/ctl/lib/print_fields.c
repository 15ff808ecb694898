/* SPDX-License-Identifier: GPL-2.0-only */
/* JSON of a message from its protobuf-c descriptor. print.h defines the language of field lists. */
#include <string.h>
#include "ctl.h"
#include "print_priv.h"
#include "zns/crypt.h"
#include "zns/grow.h"

const char ctl_checkpoint_fields[] =
	"id container state= created=created_ns:time created_ns bytes page_bytes memory_bytes? nr_images zones= groups "
	"qos_requested_mibps qos_achieved_mibps qos_max_mibps weight shared_groups! metadata_groups packed! post_copy! "
	"data_phase_us frozen_us live?{tracker rounds{bytes us} rests{why bytes pid?} not_converging!} encrypted=crypt:set key_id=crypt.key_id parent parent_bytes pre_dump! "
	"container_id=origin.container_id? container_name=origin.container_name? image=origin.image? "
	"origin{kind? host? image_dir? pid? root? checkpoint_name? ended? claimed?}";

const char ctl_restore_fields[] =
	"container checkpoint started=started_ns:time ended=ended_ns:time bytes data_phase_us=data_us achieved_mibps "
	"qos_requested_mibps zones=nr_zones! groups shared_groups!";

#define HOPS 4 /* messages inside each other on the way to a field */

/* A field, and the offsets of the messages that lead to it. */
struct place {
	const ProtobufCFieldDescriptor *f;
	unsigned hop[HOPS], nr;
};

/* A word of a field list, split into its parts. */
struct word {
	char key[48], path[64], how[8];
	char need; /* '?' or '!' */
	const char *inner; /* after the brace; NULL: none */
	struct place at; /* of the path, if there is one */
};

/* A field list is parsed once for each kind of message: a long list has thousands of them. Plans
 * stay until the end, as do the keys of objects that point into them. */
struct plan {
	const char *fields;
	const ProtobufCMessageDescriptor *d;
	struct word *v;
	size_t nr, cap;
	struct plan *next;
};

static const char *take(const char *s, const char *until, char *out, size_t len)
{
	size_t n = strcspn(s, until);

	snprintf(out, len, "%.*s", (int)n, s);
	return s + n;
}

/* Returns the rest, or NULL at the end. */
static const char *next_word(const char *s, struct word *w)
{
	int depth = 1;

	*w = (struct word){ .need = 0 };
	s += strspn(s, " ");
	if (!*s || *s == '}')
		return NULL;
	s = take(s, " =?!:{}", w->key, sizeof(w->key));
	memcpy(w->path, w->key, sizeof(w->key));
	if (*s == '=')
		s = take(s + 1, " ?!:{}", w->path, sizeof(w->path));
	if (*s == '?' || *s == '!')
		w->need = *s++;
	if (*s == ':')
		s = take(s + 1, " {}", w->how, sizeof(w->how));
	if (*s != '{')
		return s;
	for (w->inner = ++s; depth; s++)
		depth += (*s == '{') - (*s == '}');
	return s;
}

static struct place place_of(const ProtobufCMessageDescriptor *d, const char *path)
{
	struct place p = { .nr = 0 };
	char name[64];

	for (;; path++) {
		path = take(path, ".", name, sizeof(name));
		p.f = protobuf_c_message_descriptor_get_field_by_name(d, name);
		if (!p.f || (*path && p.nr == HOPS))
			abort(); /* the list does not fit its message: the first use shows it */
		if (!*path)
			return p;
		d = p.f->descriptor;
		p.hop[p.nr++] = p.f->offset;
	}
}

/* The message that has the field; NULL: it is absent. */
static const char *follow(const struct place *p, const char *m)
{
	for (unsigned i = 0; m && i < p->nr; i++)
		m = *(char *const *)(m + p->hop[i]);
	return m;
}

const ProtobufCFieldDescriptor *print_find(const ProtobufCMessageDescriptor *d, const char **m,
					   const char *path)
{
	struct place p = place_of(d, path);

	*m = follow(&p, *m);
	return p.f;
}

static const struct plan *plan_of(const ProtobufCMessageDescriptor *d, const char *fields)
{
	static struct plan *plans;
	struct word w;
	struct plan *p;

	for (p = plans; p; p = p->next)
		if (p->fields == fields && p->d == d)
			return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	*p = (struct plan){ .fields = fields, .d = d, .next = plans };
	while ((fields = next_word(fields, &w))) {
		if (*w.path)
			w.at = place_of(d, w.path);
		if (zns_grow(p->v, p->nr, p->cap))
			abort();
		p->v[p->nr++] = w;
	}
	return plans = p;
}

bool print_present(const ProtobufCFieldDescriptor *f, const char *m)
{
	if (!m)
		return false;
	if (f->label != PROTOBUF_C_LABEL_OPTIONAL)
		return true;
	if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE)
		return *(char *const *)(m + f->offset) != NULL;
	return *(const protobuf_c_boolean *)(m + f->quantifier_offset);
}

int64_t print_number(const ProtobufCFieldDescriptor *f, const char *p)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return *(const uint32_t *)p;
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return *(const int32_t *)p;
	case PROTOBUF_C_TYPE_BOOL:
		return *(const protobuf_c_boolean *)p;
	default:
		return *(const int64_t *)p;
	}
}

static struct json_object *bytes(const ProtobufCBinaryData *b)
{
	char text[ZNS_UUID_STR];

	if (b->len == ZNS_UUID_LEN)
		return json_object_new_string(zns_uuid_format(b->data, text));
	return b->len == ZNS_KEY_ID_BYTES ?
		       json_object_new_string(zns_key_id_format(b->data, text)) :
		       NULL;
}

static struct json_object *one(const ProtobufCFieldDescriptor *f, const char *p,
			       const struct word *w)
{
	struct json_object *j;
	int64_t v;

	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		return ctl_j_text(*(char *const *)p);
	case PROTOBUF_C_TYPE_BYTES:
		return bytes((const ProtobufCBinaryData *)p);
	case PROTOBUF_C_TYPE_FLOAT:
		return json_object_new_double(*(const float *)p);
	case PROTOBUF_C_TYPE_DOUBLE:
		return json_object_new_double(*(const double *)p);
	case PROTOBUF_C_TYPE_BOOL:
		return json_object_new_boolean((int)print_number(f, p));
	case PROTOBUF_C_TYPE_MESSAGE:
		j = json_object_new_object();
		ctl_json_add(j, f->descriptor, *(char *const *)p, w->inner);
		return j;
	default:
		break;
	}
	v = print_number(f, p);
	if (!strcmp(w->how, "time"))
		return ctl_json_time(v);
	if (!strcmp(w->how, "state"))
		return json_object_new_string(zns_zone_state_name((enum zns_zone_state)v));
	return !v && !strcmp(w->how, "pos") ? NULL : json_object_new_int64(v);
}

static struct json_object *several(const ProtobufCFieldDescriptor *f, const char *m,
				   const struct word *w)
{
	bool narrow = f->type == PROTOBUF_C_TYPE_UINT32 || f->type == PROTOBUF_C_TYPE_FLOAT;
	size_t n = m ? *(const size_t *)(m + f->quantifier_offset) : 0,
	       size = narrow ? sizeof(uint32_t) : sizeof(void *);
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < n; i++)
		json_object_array_add(list, one(f, *(char *const *)(m + f->offset) + i * size, w));
	return list;
}

static struct json_object *member(const struct word *w, const ProtobufCMessageDescriptor *d,
				  const void *m)
{
	const ProtobufCFieldDescriptor *f = w->at.f;
	struct json_object *v = NULL;
	const char *of;
	bool there;

	if (!f) { /* a placeholder, or an object of the same message */
		v = w->inner ? json_object_new_object() : NULL;
		if (w->inner)
			ctl_json_add(v, d, m, w->inner);
		return v;
	}
	of = follow(&w->at, m);
	there = print_present(f, of);
	if (!strcmp(w->how, "set"))
		return json_object_new_boolean(there);
	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return several(f, of, w);
	return there || (of && w->need == '!') ? one(f, of + f->offset, w) : NULL;
}

void ctl_json_add(struct json_object *j, const ProtobufCMessageDescriptor *d, const void *m,
		  const char *fields)
{
	const struct plan *p = plan_of(d, fields);

	for (size_t i = 0; i < p->nr; i++) {
		const struct word *w = &p->v[i];

		if (w->at.f && w->need == '?' && !print_present(w->at.f, follow(&w->at, m)))
			continue;
		json_object_object_add_ex(j, w->key, member(w, d, m),
					  JSON_C_OBJECT_ADD_CONSTANT_KEY);
	}
}

struct json_object *ctl_json(const void *m, const char *fields)
{
	struct json_object *j = json_object_new_object();

	ctl_json_add(j, ((const ProtobufCMessage *)m)->descriptor, m, fields);
	return j;
}

struct json_object *ctl_json_all(void *const *m, size_t n, const char *fields)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < n; i++)
		json_object_array_add(list, ctl_json(m[i], fields));
	return list;
}

struct json_object *ctl_json_checkpoint(const ZnsPb__Checkpoint *c)
{
	struct json_object *j = ctl_json(c, ctl_checkpoint_fields),
			   *zones = json_object_new_array();

	for (size_t i = 0; i < c->n_zones; i++)
		if (!i || c->zones[i]->zone != c->zones[i - 1]->zone)
			json_object_array_add(zones, json_object_new_int64(c->zones[i]->zone));
	json_object_object_add(j, "state",
			       json_object_new_string(c->pages_only ? "pages-only" : "committed"));
	json_object_object_add(j, "zones", zones);
	return j;
}
