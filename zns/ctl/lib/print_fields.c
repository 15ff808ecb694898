/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prints a message as JSON by its protobuf-c descriptor, in the format of json-c. print.h explains
 * the field lists.
 */
#include <stdarg.h>
#include <string.h>
#include "ctl.h"
#include "print_priv.h"
#include "zns/crypt.h"
#include "zns/grow.h"

const char ctl_checkpoint_fields[] =
	"id container state=pages_only!:pages created=created_ns:time created_ns bytes page_bytes memory_bytes? nr_images zones:zones groups "
	"qos_requested_mibps qos_achieved_mibps qos_max_mibps weight shared_groups! metadata_groups packed! post_copy! "
	"data_phase_us frozen_us live?{tracker rounds{bytes us} rests{why bytes pid?} not_converging!} encrypted=crypt:set key_id=crypt.key_id parent parent_bytes pre_dump! "
	"container_id=origin.container_id? container_name=origin.container_name? image=origin.image? "
	"origin{kind? host? image_dir? pid? root? checkpoint_name? ended? claimed?}";

const char ctl_restore_fields[] =
	"container checkpoint started=started_ns:time ended=ended_ns:time bytes data_phase_us=data_us achieved_mibps "
	"qos_requested_mibps zones=nr_zones! groups shared_groups!";

#define HOPS 4 /* most messages inside each other on the way to a field */

/* A field, and the offsets of the messages that contain it. */
struct place {
	const ProtobufCFieldDescriptor *f;
	unsigned hop[HOPS], nr;
};

/* A word of a field list, split into its parts. */
struct word {
	char key[48], path[64], how[8];
	char need; /* '?' or '!' */
	const char *inner; /* the text behind the brace; NULL: no brace */
	struct place at; /* the field at the end of the path, if the message has such a field */
};

/*
 * A parsed field list, for one kind of message. It is parsed once and kept until the program ends,
 * since a long list prints thousands of messages.
 */
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

/* Parses the next word. Returns the rest of the text, or NULL at the end. */
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
			/*
			 * a mistake in the source: the list does not fit its message, and the first
			 * use shows it
			 */
			abort();
		if (!*path)
			return p;
		d = p.f->descriptor;
		p.hop[p.nr++] = p.f->offset;
	}
}

/* Finds the message that contains the field; NULL: a message on the path is absent. */
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

/* ---- the text ---- */

#define OUT_STEP KIB(32)

struct out {
	FILE *f; /* NULL: keep all text in memory, with the bytes of strings unchanged */
	char *p;
	size_t len, cap;
};

static void out_flush(struct out *o)
{
	fwrite_unlocked(o->p, 1, o->len, o->f);
	o->len = 0;
}

static void put(struct out *o, const char *s, size_t len)
{
	if (o->cap - o->len < len && o->f && o->len)
		out_flush(o);
	if (o->cap - o->len < len) {
		o->cap = zns_align_up(o->len + len + 1, OUT_STEP);
		o->p = realloc(o->p, o->cap);
		if (!o->p)
			abort();
	}
	memcpy(o->p + o->len, s, len);
	o->len += len;
}

static void puts_to(struct out *o, const char *s)
{
	put(o, s, strlen(s));
}

static void put_text(struct out *o, const char *s)
{
	static const char from[] = "\b\n\r\t\f\"\\", to[] = "bnrtf\"\\";

	if (!s) {
		puts_to(o, "null");
		return;
	}
	put(o, "\"", 1);
	for (size_t n; *s; s += n) {
		char esc[8] = "\\";
		const char *c;

		for (n = 0; (unsigned char)s[n] >= 0x20 && s[n] != '"' && s[n] != '\\' &&
			    (!o->f || (unsigned char)s[n] < 0x7f);
		     n++)
			;
		put(o, s, n);
		if (n)
			continue;
		c = strchr(from, *s);
		n = 1;
		if (c)
			esc[1] = to[c - from];
		else if ((unsigned char)*s < 0x20)
			snprintf(esc, sizeof(esc), "\\u%04x", *s);
		else
			n = print_character(s, esc);
		puts_to(o, esc);
	}
	put(o, "\"", 1);
}

static void put_number(struct out *o, int64_t v)
{
	char text[24], *p = text + sizeof(text);
	uint64_t n = v < 0 ? -(uint64_t)v : (uint64_t)v;

	do
		*--p = (char)('0' + n % 10);
	while (n /= 10);
	if (v < 0)
		*--p = '-';
	put(o, p, (size_t)(text + sizeof(text) - p));
}

static void put_double(struct out *o, double v)
{
	struct json_object *j = json_object_new_double(v);

	puts_to(o, json_object_to_json_string(j));
	json_object_put(j);
}

static void put_bytes(struct out *o, const ProtobufCBinaryData *b)
{
	char text[ZNS_UUID_STR];

	put_text(o, b->len == ZNS_UUID_LEN     ? zns_uuid_format(b->data, text) :
		    b->len == ZNS_KEY_ID_BYTES ? zns_key_id_format(b->data, text) :
						 NULL);
}

/* Begins a line for an element of a list or an object. */
static void put_line(struct out *o, unsigned depth, bool first)
{
	static const char spaces[] = "                                ";

	put(o, ",\n", 2);
	if (first) {
		o->len -= 2;
		put(o, "\n", 1);
	}
	put(o, spaces, zns_min((size_t)2 * depth, sizeof(spaces) - 1));
}

static bool put_members(struct out *o, const ProtobufCMessageDescriptor *d, const void *m,
			const char *fields, unsigned depth);

static void put_object(struct out *o, const ProtobufCMessageDescriptor *d, const void *m,
		       const char *fields, unsigned depth)
{
	put(o, "{", 1);
	if (put_members(o, d, m, fields, depth + 1))
		put_line(o, depth, true);
	put(o, "}", 1);
}

static void put_one(struct out *o, const ProtobufCFieldDescriptor *f, const char *p,
		    const struct word *w, unsigned depth)
{
	char text[32];
	int64_t v;

	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		put_text(o, *(char *const *)p);
		return;
	case PROTOBUF_C_TYPE_BYTES:
		put_bytes(o, (const ProtobufCBinaryData *)p);
		return;
	case PROTOBUF_C_TYPE_FLOAT:
		put_double(o, *(const float *)p);
		return;
	case PROTOBUF_C_TYPE_DOUBLE:
		put_double(o, *(const double *)p);
		return;
	case PROTOBUF_C_TYPE_MESSAGE:
		put_object(o, f->descriptor, *(char *const *)p, w->inner, depth);
		return;
	default:
		break;
	}
	v = print_number(f, p);
	if (!strcmp(w->how, "pages"))
		put_text(o, v ? "pages-only" : "committed");
	else if (f->type == PROTOBUF_C_TYPE_BOOL)
		puts_to(o, v ? "true" : "false");
	else if (!strcmp(w->how, "time"))
		put_text(o, zns_format_time(v, text, sizeof(text)));
	else if (!strcmp(w->how, "state"))
		put_text(o, zns_zone_state_name((enum zns_zone_state)v));
	else if (!v && !strcmp(w->how, "pos"))
		puts_to(o, "null");
	else
		put_number(o, v);
}

/* Prints only the numbers of the zones, each once. */
static bool is_again(char *const *list, size_t i)
{
	return i && ((const ZnsPb__ZoneUse *)list[i])->zone ==
			    ((const ZnsPb__ZoneUse *)list[i - 1])->zone;
}

static void put_several(struct out *o, const ProtobufCFieldDescriptor *f, const char *m,
			const struct word *w, unsigned depth)
{
	bool narrow = f->type == PROTOBUF_C_TYPE_UINT32 || f->type == PROTOBUF_C_TYPE_FLOAT,
	     zones = !strcmp(w->how, "zones");
	size_t n = m ? *(const size_t *)(m + f->quantifier_offset) : 0,
	       size = narrow ? sizeof(uint32_t) : sizeof(void *);

	put(o, "[", 1);
	for (size_t i = 0; i < n; i++) {
		char *list = *(char *const *)(m + f->offset);

		if (zones && is_again((char *const *)list, i))
			continue;
		put_line(o, depth + 1, !i);
		if (zones)
			put_number(o, ((ZnsPb__ZoneUse *const *)list)[i]->zone);
		else
			put_one(o, f, list + i * size, w, depth + 1);
	}
	if (n)
		put_line(o, depth, true);
	put(o, "]", 1);
}

static void put_member(struct out *o, const struct word *w, const ProtobufCMessageDescriptor *d,
		       const void *m, unsigned depth)
{
	const ProtobufCFieldDescriptor *f = w->at.f;
	const char *of = f ? follow(&w->at, m) : NULL;
	bool there = f && print_present(f, of);

	if (!f && w->inner)
		put_object(o, d, m, w->inner, depth);
	else if (f && !strcmp(w->how, "set"))
		puts_to(o, there ? "true" : "false");
	else if (f && f->label == PROTOBUF_C_LABEL_REPEATED)
		put_several(o, f, of, w, depth);
	else if (there || (of && w->need == '!'))
		put_one(o, f, of + f->offset, w, depth);
	else
		puts_to(o, "null");
}

/* Returns false if no member was printed. */
static bool put_members(struct out *o, const ProtobufCMessageDescriptor *d, const void *m,
			const char *fields, unsigned depth)
{
	const struct plan *p = plan_of(d, fields);
	bool any = false;

	for (size_t i = 0; i < p->nr; i++) {
		const struct word *w = &p->v[i];

		if (w->at.f && w->need == '?' && !print_present(w->at.f, follow(&w->at, m)))
			continue;
		put_line(o, depth, !any);
		put(o, "\"", 1);
		puts_to(o, w->key);
		put(o, "\": ", 3);
		put_member(o, w, d, m, depth);
		any = true;
	}
	return any;
}

/* ---- functions that print.h declares ---- */

static struct json_object *parsed(const ProtobufCMessageDescriptor *d, const void *m,
				  const char *fields)
{
	struct out o = { .f = NULL };
	struct json_object *j;

	put_object(&o, d, m, fields, 0);
	put(&o, "", 1);
	j = json_tokener_parse(o.p);
	free(o.p);
	if (!j)
		abort();
	return j;
}

void ctl_json_add(struct json_object *j, const ProtobufCMessageDescriptor *d, const void *m,
		  const char *fields)
{
	ctl_json_join(j, parsed(d, m, fields));
}

struct json_object *ctl_json(const void *m, const char *fields)
{
	return parsed(((const ProtobufCMessage *)m)->descriptor, m, fields);
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
	return ctl_json(c, ctl_checkpoint_fields);
}

/* ---- a long list ---- */

void ctl_list_begin(struct ctl_list *l, const char *key)
{
	*l = (struct ctl_list){ .out = calloc(1, sizeof(*l->out)) };
	if (!l->out)
		abort();
	l->out->f = stdout;
	puts_to(l->out, "{\n  ");
	put_text(l->out, key);
	puts_to(l->out, ": [");
}

void ctl_list_add(struct ctl_list *l, const void *m, const char *fields, const char *flag, ...)
{
	struct out *o = l->out;
	va_list ap;

	put_line(o, 2, !l->nr++);
	put(o, "{", 1);
	put_members(o, ((const ProtobufCMessage *)m)->descriptor, m, fields, 3);
	va_start(ap, flag);
	for (; flag; flag = va_arg(ap, const char *)) {
		put_line(o, 3, false);
		put_text(o, flag);
		puts_to(o, va_arg(ap, int) ? ": true" : ": false");
	}
	va_end(ap);
	put_line(o, 2, true);
	put(o, "}", 1);
}

void ctl_list_end(struct ctl_list *l)
{
	puts_to(l->out, l->nr ? "\n  ]\n}\n" : "]\n}\n");
	out_flush(l->out);
	free(l->out->p);
	free(l->out);
}
