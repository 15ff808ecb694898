/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FORGE_MUTATE_H
#define FORGE_MUTATE_H
/*
 * Changes one field of one message, by the protobuf wire format: a number becomes one at which
 * arithmetic goes wrong, a field is doubled, left out, or its bytes are left to the fuzzer. Lengths
 * of what encloses it follow.
 */
#include "forge.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

struct pb_field {
	size_t at, body, end; /* offsets of the field: tag, content, end */
	unsigned wire;
};

static size_t pb_varint(const uint8_t *p, size_t len, uint64_t *v)
{
	*v = 0;
	for (size_t i = 0; i < len && i < 10; i++) {
		*v |= (uint64_t)(p[i] & 0x7f) << 7 * i;
		if (!(p[i] & 0x80))
			return i + 1;
	}
	return 0;
}

static size_t pb_put(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		p[n++] = (uint8_t)v | 0x80;
	p[n++] = (uint8_t)v;
	return n;
}

static bool pb_field(const uint8_t *p, size_t len, size_t at, struct pb_field *f)
{
	uint64_t tag, v;
	size_t n = pb_varint(p + at, len - at, &tag);

	if (!n)
		return false;
	*f = (struct pb_field){ .at = at, .body = at + n, .wire = tag & 7 };
	switch (f->wire) {
	case 0:
		n = pb_varint(p + f->body, len - f->body, &v);
		f->end = f->body + n;
		return n;
	case 1:
		f->end = f->body + 8;
		break;
	case 2:
		n = pb_varint(p + f->body, len - f->body, &v);
		if (!n || v > len - f->body - n)
			return false;
		f->body += n;
		f->end = f->body + v;
		break;
	case 5:
		f->end = f->body + 4;
		break;
	default:
		return false;
	}
	return f->end <= len;
}

static size_t pb_fields(const uint8_t *p, size_t len)
{
	struct pb_field f;
	size_t n = 0, at = 0;

	while (at < len && pb_field(p, len, at, &f)) {
		at = f.end;
		n++;
	}
	return at == len ? n : 0;
}

static uint64_t odd_number(unsigned *seed)
{
	static const uint64_t v[] = { 0,
				      1,
				      2,
				      7,
				      8,
				      511,
				      512,
				      4095,
				      4096,
				      4097,
				      FORGE_CAP - 4096,
				      FORGE_CAP - 1,
				      FORGE_CAP,
				      FORGE_CAP + 1,
				      1u << 20,
				      1u << 31,
				      UINT32_MAX,
				      1ull << 32,
				      1ull << 52,
				      1ull << 56,
				      INT64_MAX,
				      1ull << 63,
				      UINT64_MAX - 4095,
				      UINT64_MAX };

	if (rand_r(seed) % 3 == 0)
		return (uint64_t)rand_r(seed) % 32 * FORGE_BLOCK;
	return v[(unsigned)rand_r(seed) % (sizeof(v) / sizeof(*v))];
}

/* The new message in @out (room for len + 64 bytes), its length. */
static size_t pb_change(const uint8_t *p, size_t len, uint8_t *out, unsigned *seed)
{
	size_t nr = pb_fields(p, len), pick, at = 0, n = 0, body;
	struct pb_field f = { 0 };
	uint8_t *inner;

	if (!nr) { /* bytes of a text or a number */
		memcpy(out, p, len);
		return LLVMFuzzerMutate ? LLVMFuzzerMutate(out, len, len + 16) : len;
	}
	pick = (unsigned)rand_r(seed) % nr;
	for (size_t i = 0; i <= pick; i++, at = f.end)
		pb_field(p, len, at, &f);
	memcpy(out, p, f.at);
	n = f.at;
	switch ((unsigned)rand_r(seed) % 12) {
	case 0: /* without it */
		break;
	case 1: /* twice */
		memcpy(out + n, p + f.at, f.end - f.at);
		n += f.end - f.at;
		if (f.end - f.at <= 48) {
			memcpy(out + n, p + f.at, f.end - f.at);
			n += f.end - f.at;
		}
		break;
	default:
		for (size_t k = f.at; k < f.body; k++) { /* copies its tag only */
			out[n++] = p[k];
			if (!(p[k] & 0x80))
				break;
		}
		if (f.wire == 0) {
			n += pb_put(out + n, odd_number(seed));
		} else if (f.wire == 2) {
			inner = malloc(f.end - f.body + 80);
			body = inner ? pb_change(p + f.body, f.end - f.body, inner, seed) : 0;
			n += pb_put(out + n, body);
			if (inner)
				memcpy(out + n, inner, body);
			n += body;
			free(inner);
		} else {
			for (size_t k = f.body; k < f.end; k++)
				out[n++] = (uint8_t)rand_r(seed);
		}
	}
	memcpy(out + n, p + f.end, len - f.end);
	return n + len - f.end;
}

static size_t put_piece_bytes(uint8_t *out, const struct forge_piece *p)
{
	out[0] = p->kind;
	out[1] = p->zone;
	out[2] = p->type;
	memcpy(out + 3, &p->generation, 8);
	memcpy(out + 11, &p->seq, 8);
	out[19] = (uint8_t)p->len;
	out[20] = (uint8_t)(p->len >> 8);
	memcpy(out + FORGE_HEAD, p->payload, p->len);
	return FORGE_HEAD + p->len;
}

static void change_piece(struct forge_piece *p, uint8_t *buf, unsigned *seed)
{
	static const uint8_t types[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 32, 33, 44, 70, 71, 80 };

	switch ((unsigned)rand_r(seed) % 16) {
	case 0:
		p->zone = (uint8_t)rand_r(seed);
		break;
	case 1:
		p->type = types[(unsigned)rand_r(seed) % sizeof(types)];
		break;
	case 2:
		p->generation = odd_number(seed);
		break;
	case 3:
		p->seq = odd_number(seed);
		break;
	case 4:
		p->kind = (uint8_t)rand_r(seed) % FORGE_KINDS;
		break;
	default:
		if (p->len > 60000)
			break;
		p->len = (uint32_t)pb_change(p->payload, p->len, buf, seed);
		p->payload = buf;
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	struct forge_piece v[FORGE_MAX];
	const uint8_t *d = data + 1;
	size_t left = size ? size - 1 : 0, n = 0, at = 1;
	uint8_t *out, *buf;
	unsigned pick;

	while (n < FORGE_MAX && forge_next(&d, &left, &v[n]))
		n++;
	if (!n)
		return LLVMFuzzerMutate(data, size, max);
	out = malloc(2 * size + 256);
	buf = malloc(size + 256);
	if (!out || !buf) {
		free(out);
		free(buf);
		return size;
	}
	out[0] = rand_r(&seed) % 8 ? data[0] : (uint8_t)rand_r(&seed);
	pick = (unsigned)rand_r(&seed) % (unsigned)n;
	switch ((unsigned)rand_r(&seed) % 12) {
	case 0: /* without it */
		if (n > 1)
			memmove(&v[pick], &v[pick + 1], (--n - pick) * sizeof(*v));
		break;
	case 1: /* twice */
		if (n < FORGE_MAX)
			v[n++] = v[pick];
		break;
	case 2: { /* replaces another field */
		unsigned other = (unsigned)rand_r(&seed) % (unsigned)n;
		struct forge_piece p = v[other];

		v[other] = v[pick];
		v[pick] = p;
		break;
	}
	default:
		change_piece(&v[pick], buf, &seed);
	}
	for (size_t i = 0; i < n; i++) {
		if (at + FORGE_HEAD + v[i].len > max || at + FORGE_HEAD + v[i].len > 2 * size + 256)
			break;
		at += put_piece_bytes(out + at, &v[i]);
	}
	memcpy(data, out, at);
	free(out);
	free(buf);
	return at;
}

#endif
