/* SPDX-License-Identifier: GPL-2.0-only */
/* JSON of a message from its protobuf-c descriptor. print.h defines the language of field lists. */
#include <string.h>
#include "ctl.h"
#include "print_priv.h"
#include "zns/crypt.h"

const char ctl_checkpoint_fields[] =
	"id container state= created=created_ns:time created_ns bytes page_bytes memory_bytes? nr_images zones= groups "
	"qos_requested_mibps qos_achieved_mibps qos_max_mibps weight shared_groups! metadata_groups packed! post_copy! "
	"data_phase_us frozen_us live?{tracker rounds{bytes us} rests{why bytes pid?} not_converging!} encrypted=crypt:set key_id=crypt.key_id parent parent_bytes pre_dump! "
	"container_id=origin.container_id? container_name=origin.container_name? image=origin.image? "
	"origin{kind? host? image_dir? pid? root? checkpoint_name? ended? claimed?}";

const char ctl_restore_fields[] =
	"container checkpoint started=started_ns:time ended=ended_ns:time bytes data_phase_us=data_us achieved_mibps "
	"qos_requested_mibps zones=nr_zones! groups shared_groups!";

/* One word of a field list, in parts. */
struct word {
	char key[48], path[64], how[8];
	char need; /* '?' or '!' */
	const char *inner; /* after the brace; NULL: none */
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

const ProtobufCFieldDescriptor *print_find(const ProtobufCMessageDescriptor *d, const char **m,
					   const char *path)
{
	const ProtobufCFieldDescriptor *f;
	char name[64];

	for (;; path++) {
		path = take(path, ".", name, sizeof(name));
		f = protobuf_c_message_descriptor_get_field_by_name(d, name);
		if (!f)
			abort(); /* the list does not fit its message: the first use shows it */
		if (!*path)
			return f;
		d = f->descriptor;
		*m = *m ? *(char *const *)(*m + f->offset) : NULL;
	}
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

void ctl_json_add(struct json_object *j, const ProtobufCMessageDescriptor *d, const void *m,
		  const char *fields)
{
	struct word w;

	while ((fields = next_word(fields, &w))) {
		const ProtobufCFieldDescriptor *f;
		struct json_object *v = NULL;
		const char *of = m;
		bool there;

		if (!*w.path) { /* a placeholder, or an object of the same message */
			v = w.inner ? json_object_new_object() : NULL;
			if (w.inner)
				ctl_json_add(v, d, m, w.inner);
			json_object_object_add(j, w.key, v);
			continue;
		}
		f = print_find(d, &of, w.path);
		there = print_present(f, of);
		if (w.need == '?' && !there)
			continue;
		if (!strcmp(w.how, "set"))
			v = json_object_new_boolean(there);
		else if (f->label == PROTOBUF_C_LABEL_REPEATED)
			v = several(f, of, &w);
		else if (there || (of && w.need == '!'))
			v = one(f, of + f->offset, &w);
		json_object_object_add(j, w.key, v);
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
