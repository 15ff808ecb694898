/* SPDX-License-Identifier: GPL-2.0-only */
/* Keys: their files, the keyring, fingerprints, wrapping; and units and seals under the key of one
 * checkpoint. */
#include <linux/keyctl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "emu_common.h"
#include "../../zns/crypt/crypt_priv.h"
#include "zns/crypt_memory.h"

static const uint8_t id_a[ZNS_UUID_LEN] = "checkpoint-aaaaa",
		     id_b[ZNS_UUID_LEN] = "checkpoint-bbbbb";
static const char hex_key[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

static char *in_dir(const char *name)
{
	static char path[4][256];
	static int n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof(path[n]), "%s/%s", test_dir, name);
	return path[n];
}

static char *spec_of(const char *name)
{
	static char spec[300];

	snprintf(spec, sizeof(spec), "file:%s", in_dir(name));
	return spec;
}

static void put_file(const char *name, const void *data, size_t len, mode_t mode)
{
	int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static struct zns_master *load(const char *name)
{
	struct zns_master *m = NULL;

	assert_ok(zns_master_load(spec_of(name), &m, &err));
	return m;
}

static struct zns_master *make(const char *name)
{
	assert_ok(zns_master_create(in_dir(name), &err));
	return load(name);
}

/* --- master keys --- */

static void key_files(void **state)
{
	uint8_t raw[ZNS_KEY_BYTES];
	struct zns_master *m, *n;
	struct stat st;

	for (int i = 0; i < ZNS_KEY_BYTES; i++)
		raw[i] = (uint8_t)i;
	/* Raw, with and without the newline, capital letters: one key. */
	put_file("raw", raw, sizeof(raw), 0600);
	put_file("hex", hex_key, 65, 0600);
	put_file("bare", hex_key, 64, 0400);
	put_file("upper", "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F", 64,
		 0600);
	m = load("raw");
	for (size_t i = 0; i < 3; i++) {
		static const char *const same[] = { "hex", "bare", "upper" };

		n = load(same[i]);
		assert_memory_equal(zns_master_id(m), zns_master_id(n), ZNS_KEY_ID_BYTES);
		assert_memory_equal(m->wrap, n->wrap, ZNS_KEY_BYTES);
		zns_master_free(n);
	}
	/* The fingerprint is part of the format (format.md): HMAC-SHA-256(key, "zns-criu 1 id"). */
	assert_memory_equal(zns_master_id(m), "\x6f\x82\x30\x89\xed\x9b\xc6\xb1", ZNS_KEY_ID_BYTES);
	zns_master_free(m);
	/* Made ones differ, are for their owner only, and never replace anything. */
	m = make("one");
	n = make("two");
	assert_memory_not_equal(zns_master_id(m), zns_master_id(n), ZNS_KEY_ID_BYTES);
	assert_int_equal(stat(in_dir("one"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, 65);
	assert_fails(zns_master_create(in_dir("one"), &err), -EEXIST, "one");
	zns_master_free(m);
	zns_master_free(n);
}

static void refused_keys(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} bad[] = {
		{ "", 0 },
		{ "short", 5 },
		{ hex_key, 63 },
		{ hex_key, 31 },
		{ "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n\n", 66 },
		{ "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1g\n", 65 },
		{ "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f ", 65 },
	};
	struct zns_master *m = NULL;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++) {
		put_file("bad", bad[i].text, bad[i].len, 0600);
		assert_fails(zns_master_load(spec_of("bad"), &m, &err), -EINVAL, "is no key");
		assert_null(m);
		/* The message must contain no bytes of the key. */
		assert_null(strstr(err.msg, "0001020304"));
	}
	put_file("open", hex_key, 65, 0640);
	assert_fails(zns_master_load(spec_of("open"), &m, &err), -EPERM, "mode 0640");
	put_file("open", hex_key, 65, 0604);
	assert_fails(zns_master_load(spec_of("open"), &m, &err), -EPERM, "chmod 600");
	if (!geteuid()) {
		put_file("foreign", hex_key, 65, 0600);
		assert_int_equal(chown(in_dir("foreign"), 12345, 0), 0);
		assert_fails(zns_master_load(spec_of("foreign"), &m, &err), -EPERM, "user 12345");
	}
	assert_fails(zns_master_load(spec_of("none"), &m, &err), -ENOENT, "none");
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	assert_fails(zns_master_load(spec_of("fifo"), &m, &err), -EPERM, "regular file");
	assert_fails(zns_master_load("file:", &m, &err), -EINVAL, "names no key");
	assert_fails(zns_master_load("/etc/key", &m, &err), -EINVAL, "file:PATH");
	assert_fails(zns_master_load("keyring:", &m, &err), -EINVAL, "names no key");
}

static void keyring_keys(void **state)
{
	struct zns_master *m = NULL, *n;
	long key = syscall(SYS_add_key, "user", "zns-unit-test", hex_key, 65,
			   KEY_SPEC_PROCESS_KEYRING);

	if (key < 0 && (errno == ENOSYS || errno == EPERM)) {
		print_message("no keyring here: %s\n", strerror(errno));
		skip();
	}
	assert_true(key >= 0);
	put_file("hex", hex_key, 65, 0600);
	n = load("hex");
	assert_ok(zns_master_load("keyring:zns-unit-test", &m, &err));
	assert_memory_equal(zns_master_id(m), zns_master_id(n), ZNS_KEY_ID_BYTES);
	zns_master_free(m);
	zns_master_free(n);
	assert_fails(zns_master_load("keyring:zns-unit-test-none", &m, &err), -ENOKEY,
		     "no key \"zns-unit-test-none\"");
	assert_int_equal(syscall(SYS_keyctl, KEYCTL_UPDATE, key, "too short", 9, 0), 0);
	assert_fails(zns_master_load("keyring:zns-unit-test", &m, &err), -EINVAL, "is no key");
	syscall(SYS_keyctl, KEYCTL_REVOKE, key);
}

/* What mincore and smaps say of the page a key is in: locked, not in a dump. */
static void secret_memory(void **state)
{
	struct zns_master *m = make("k");
	cleanup_file FILE *f = fopen("/proc/self/smaps", "re");
	bool here = false, seen = false;
	unsigned long from, to;
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (uintptr_t)m >= from && (uintptr_t)m < to;
		if (here && !strncmp(line, "VmFlags:", 8)) {
			seen = true;
#ifndef __SANITIZE_ADDRESS__ /* which makes mlock do nothing */
			assert_non_null(strstr(line, " lo")); /* locked */
#endif
			assert_non_null(strstr(line, " dd")); /* not dumped */
			assert_non_null(strstr(line, " dc")); /* not given to a fork */
		}
	}
	assert_true(seen);
	zns_master_free(m);
	zns_master_free(NULL);
	zns_crypt_free(NULL);
}

static const void *leaving;
static bool wiped;

int __real_munmap(void *p, size_t len);
int __wrap_munmap(void *p, size_t len);
int __wrap_munmap(void *p, size_t len)
{
	if (p == leaving) {
		wiped = true;
		for (size_t i = 0; i < len; i++)
			wiped &= !((volatile uint8_t *)p)[i];
	}
	return __real_munmap(p, len);
}

#define assert_wiped(p, call)       \
	do {                        \
		leaving = p;        \
		wiped = false;      \
		call;               \
		assert_true(wiped); \
		leaving = NULL;     \
	} while (0)

/* When a key is freed, nothing of it stays in the page that goes back to the kernel. */
static void wiped_memory(void **state)
{
	uint8_t sealed[ZNS_MEMORY_SEALED];
	struct zns_memory_key *k, *got;
	struct zns_master *m = make("k");
	struct zns_crypt *c;
	const void *first;

	assert_ok(zns_crypt_new(m, id_a, &c, &err));
	assert_ok(zns_memory_key_new(id_b, &k, &err));
	assert_ok(zns_memory_key_put(k, c, sealed, &err));
	zns_memory_key_free(k);
	assert_ok(zns_memory_key_get(c, sealed, sizeof(sealed), &got, &err));
	first = zns_memory_key_context(got);
	first = (const void *)((uintptr_t)first & ~(uintptr_t)4095); /* the page that it is in */
	assert_wiped(first, zns_memory_key_free(got));
	assert_wiped(c, zns_crypt_free(c));
	assert_wiped(m, zns_master_free(m));
}

/* ---- nonces ---- */

static uint8_t last_nonce[NONCE_BYTES], last_head[1 + ZNS_UUID_LEN];

int __real_aead_seal(const struct aead *a, const EVP_CIPHER *cipher, uint8_t *buf, size_t len,
		     uint8_t tag[ZNS_TAG_BYTES]);
int __wrap_aead_seal(const struct aead *a, const EVP_CIPHER *cipher, uint8_t *buf, size_t len,
		     uint8_t tag[ZNS_TAG_BYTES]);
int __wrap_aead_seal(const struct aead *a, const EVP_CIPHER *cipher, uint8_t *buf, size_t len,
		     uint8_t tag[ZNS_TAG_BYTES])
{
	memcpy(last_nonce, a->nonce, NONCE_BYTES);
	if (a->aad_len[2] == sizeof(last_head))
		memcpy(last_head, a->aad[2], sizeof(last_head));
	return __real_aead_seal(a, cipher, buf, len, tag);
}

/*
 * A checkpoint that others join is sealed again under its key. The images that came have another
 * base, and so has the seal over them: two seals with one nonce give away the key of the MAC.
 */
static void seals_of_one_key(void **state)
{
	ZnsPb__Checkpoint k = ZNS_PB__CHECKPOINT__INIT;
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__Image i[3], *list[3];
	uint8_t had[4][NONCE_BYTES], tag[ZNS_TAG_BYTES], unit[16] = { 0 };
	struct zns_master *master = make("k");
	struct zns_crypt *c;

	assert_ok(zns_crypt_new(master, id_a, &c, &err));
	m.checkpoint = &k;
	m.images = list;
	for (size_t n = 0; n < ZNS_ARRAY_SIZE(i); n++) {
		zns_pb__image__init(&i[n]);
		i[n].name = (char *)"pages-1.img";
		i[n].has_unit_base = n > 0;
		i[n].unit_base = n ? 1ull << 62 | (uint64_t)n << 32 : 0;
		list[n] = &i[n];
		m.n_images = n + 1;
		assert_ok(zns_crypt_seal_manifest(c, &m, tag, &err));
		memcpy(had[n], last_nonce, NONCE_BYTES);
	}
	/* nor is it one of a unit, of the last image there may be */
	assert_ok(zns_crypt_seal_unit(c, UINT32_MAX - 1, "pages-1.img", i[2].unit_base, unit,
				      sizeof(unit), tag, &err));
	memcpy(had[3], last_nonce, NONCE_BYTES);
	assert_fails(zns_crypt_seal_unit(c, UINT32_MAX, "pages-1.img", 0, unit, sizeof(unit), tag,
					 &err),
		     -EINVAL, "too many images");
	for (size_t n = 0; n < ZNS_ARRAY_SIZE(had); n++)
		for (size_t o = 0; o < n; o++)
			assert_memory_not_equal(had[n], had[o], NONCE_BYTES);
	zns_crypt_free(c);
	zns_master_free(master);
}

/* What the seal of a manifest proves beside its images is part of the format. */
static void seal_head(void **state)
{
	uint8_t want[4][1 + ZNS_UUID_LEN] = { { 0 }, { 1 }, { 2 }, { 3 } };
	uint8_t parent[ZNS_UUID_LEN], mac[ZNS_MAC_BYTES] = { 7 }, tag[ZNS_TAG_BYTES];
	ProtobufCBinaryData former = { sizeof(mac), mac };
	ZnsPb__Checkpoint k = ZNS_PB__CHECKPOINT__INIT;
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	struct zns_master *master = make("k");
	struct zns_crypt *c;

	for (int i = 0; i < ZNS_UUID_LEN; i++)
		want[1][1 + i] = want[3][1 + i] = parent[i] = (uint8_t)(0xa0 + i);
	assert_ok(zns_crypt_new(master, id_a, &c, &err));
	m.checkpoint = &k;
	m.former_macs = &former;
	k.parent = (ProtobufCBinaryData){ sizeof(parent), parent };
	for (size_t n = 0; n < 4; n++) {
		k.has_parent = n & 1;
		m.n_former_macs = n >> 1;
		assert_ok(zns_crypt_seal_manifest(c, &m, tag, &err));
		assert_memory_equal(last_head, want[n], sizeof(last_head));
	}
	zns_crypt_free(c);
	zns_master_free(master);
}

/* ---- what calls leave on their stack ---- */

#define STACK KIB(256)

static uint8_t *stack;
static ZnsPb__CheckpointKey *record, *anew;

static void *load_raw(void *arg)
{
	struct zns_master *m = NULL;

	zns_master_load(spec_of("raw"), &m, NULL);
	zns_master_free(m);
	return NULL;
}

static void *load_hex(void *arg)
{
	struct zns_master *m = NULL;

	zns_master_load(spec_of("hex"), &m, NULL);
	zns_master_free(m);
	return NULL;
}

static void *load_cut_off(void *arg)
{
	struct zns_master *m = NULL;

	zns_master_load(spec_of("cut"), &m, NULL);
	zns_master_free(m);
	return NULL;
}

static void *create(void *arg)
{
	zns_master_create(in_dir("new"), NULL);
	return NULL;
}

static void *wrap_anew(void *arg)
{
	zns_pb__checkpoint_key__free_unpacked(anew, NULL);
	zns_crypt_rewrap(arg, arg, id_a, record, &anew,
			 NULL); /* the last call, so nothing is over it */
	return NULL;
}

static struct {
	void *(*fn)(void *);
	void *arg;
} call;

/* Far from the end of the stack, which the end of the thread writes over. */
static void *deep(void *unused)
{
	volatile uint8_t room[KIB(64)];

	room[0] = room[sizeof(room) - 1] = 0;
	call.fn(call.arg);
	return room[0] ? NULL : unused;
}

/* Calls it on a stack of its own, twice: the first time libraries are bound, which saves registers. */
static void on_stack(void *(*fn)(void *), void *arg, const char *remove)
{
	for (int i = 0; i < 2; i++) {
		pthread_attr_t attr;
		pthread_t t;

		if (remove)
			unlink(in_dir(remove));
		call.fn = fn;
		call.arg = arg;
		memset(stack, 0, STACK);
		pthread_attr_init(&attr);
		assert_int_equal(pthread_attr_setstack(&attr, stack, STACK), 0);
		assert_int_equal(pthread_create(&t, &attr, deep, NULL), 0);
		pthread_join(t, NULL);
		pthread_attr_destroy(&attr);
	}
}

/* Half of a key is one that can be guessed. */
static __attribute__((no_sanitize_address)) bool on_it(const void *secret, size_t len)
{
	const volatile uint8_t *p = stack;
	const uint8_t *s = secret;
	size_t n;

	for (size_t at = 0; at + len / 2 <= STACK; at++)
		for (size_t half = 0; half < 2; half++) {
			for (n = 0; n < len / 2 && p[at + n] == s[half * (len / 2) + n]; n++)
				;
			if (n == len / 2)
				return true;
		}
	return false;
}

static void wiped_stack(void **state)
{
	uint8_t raw[ZNS_KEY_BYTES];
	cleanup_free uint8_t *text = NULL;
	struct zns_master *m;
	struct zns_crypt *c;
	size_t len;

	for (int i = 0; i < ZNS_KEY_BYTES; i++)
		raw[i] = (uint8_t)i;
	put_file("raw", raw, sizeof(raw), 0600);
	put_file("hex", hex_key, 65, 0600);
	put_file("cut", hex_key, 63, 0600);
	stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m = load("raw");
	on_stack(load_raw, NULL, NULL);
	assert_false(on_it(raw, sizeof(raw)));
	assert_false(on_it(m->wrap, sizeof(m->wrap)));
	on_stack(load_hex, NULL, NULL);
	assert_false(on_it(raw, sizeof(raw)));
	assert_false(on_it(hex_key, 64));
	on_stack(load_cut_off, NULL, NULL);
	assert_false(on_it(hex_key, 62));
	on_stack(create, NULL, "new");
	assert_int_equal(zns_read_file(AT_FDCWD, in_dir("new"), 100, &text, &len), 0);
	assert_int_equal(master_decode(text, len, raw), 0);
	assert_false(on_it(text, 64));
	assert_false(on_it(raw, sizeof(raw)));
	assert_ok(zns_crypt_new(m, id_a, &c, &err));
	record = zns_crypt_record(c);
	on_stack(wrap_anew, m, NULL);
	assert_false(on_it(c->key, ZNS_KEY_BYTES));
	zns_pb__checkpoint_key__free_unpacked(record, NULL);
	zns_pb__checkpoint_key__free_unpacked(anew, NULL);
	zns_crypt_free(c);
	zns_master_free(m);
	munmap(stack, STACK);
}

/* --- wrapped keys --- */

static void wrapped_keys(void **state)
{
	struct zns_master *m = make("m"), *other = make("o");
	struct zns_crypt *c, *d = NULL, *e;
	ZnsPb__CheckpointKey *k, *r;

	assert_ok(zns_crypt_new(m, id_a, &c, &err));
	assert_ok(zns_crypt_new(m, id_a, &e, &err));
	assert_memory_not_equal(c->key, e->key, ZNS_KEY_BYTES); /* random for each */
	zns_crypt_free(e);
	k = zns_crypt_record(c);
	assert_true(zns_crypt_record_sane(k));
	assert_int_equal(k->wrapped.len, ZNS_WRAPPED_BYTES);
	assert_ok(zns_crypt_open(m, id_a, k, &d, &err));
	assert_memory_equal(c->key, d->key, ZNS_KEY_BYTES);
	zns_crypt_free(d);
	/* With another master key, or for another checkpoint. */
	assert_fails(zns_crypt_open(other, id_a, k, &d, &err), -EKEYREJECTED, "encrypted with key");
	assert_fails(zns_crypt_open(m, id_b, k, &d, &err), -EBADMSG, "damaged");
	/* Even one that claims the same fingerprint. */
	memcpy(other->id, m->id, ZNS_KEY_ID_BYTES);
	assert_fails(zns_crypt_open(other, id_a, k, &d, &err), -EBADMSG, "damaged");
	memcpy(other->id, "12345678", ZNS_KEY_ID_BYTES);
	/* Any bit. */
	for (size_t i = 0; i < 8 * ZNS_WRAPPED_BYTES; i++) {
		k->wrapped.data[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_fails(zns_crypt_open(m, id_a, k, &d, &err), -EBADMSG, "damaged");
		k->wrapped.data[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	/* Wrapped keys that are cut short, missing, or of an unknown cipher. */
	k->wrapped.len--;
	assert_false(zns_crypt_record_sane(k));
	assert_fails(zns_crypt_open(m, id_a, k, &d, &err), -EBADMSG, "damaged");
	k->wrapped.len++;
	k->has_wrapped = 0;
	assert_fails(zns_crypt_open(m, id_a, k, &d, &err), -ENOKEY, "is gone");
	k->has_wrapped = 1;
	k->cipher = 2;
	assert_fails(zns_crypt_open(m, id_a, k, &d, &err), -EPROTONOSUPPORT, "cipher 2");
	k->cipher = 1;
	/* Wrapped with another master key: the key is the same, and the old master key cannot
	 * unwrap it. */
	assert_ok(zns_crypt_rewrap(m, other, id_a, k, &r, &err));
	assert_memory_equal(r->key_id.data, other->id, ZNS_KEY_ID_BYTES);
	assert_ok(zns_crypt_open(other, id_a, r, &d, &err));
	assert_memory_equal(c->key, d->key, ZNS_KEY_BYTES);
	zns_crypt_free(d);
	assert_fails(zns_crypt_open(m, id_a, r, &d, &err), -EKEYREJECTED, "encrypted with key");
	assert_fails(zns_crypt_rewrap(other, m, id_a, k, &r, &err), -EKEYREJECTED,
		     "encrypted with key");
	zns_pb__checkpoint_key__free_unpacked(k, NULL);
	zns_pb__checkpoint_key__free_unpacked(r, NULL);
	zns_crypt_free(c);
	zns_master_free(m);
	zns_master_free(other);
}

/* --- units --- */

#define LEN 5000

static void units(void **state)
{
	struct zns_master *m = make("m");
	uint8_t plain[LEN], buf[LEN], tag[ZNS_TAG_BYTES], tag2[ZNS_TAG_BYTES], other[LEN];
	struct zns_crypt *c, *d;

	assert_ok(zns_crypt_new(m, id_a, &c, &err));
	assert_ok(zns_crypt_new(m, id_b, &d, &err));
	for (size_t i = 0; i < LEN; i++)
		plain[i] = (uint8_t)(i * 7);
	memcpy(buf, plain, LEN);
	assert_ok(zns_crypt_seal_unit(c, 3, "pages-1.img", 9, buf, LEN, tag, &err));
	assert_memory_not_equal(buf, plain, LEN);
	memcpy(other, buf, LEN);
	assert_ok(zns_crypt_open_unit(c, 3, "pages-1.img", 9, buf, LEN, tag, &err));
	assert_memory_equal(buf, plain, LEN);
	/* With the number of another unit or image, another name, another checkpoint. */
	memcpy(buf, other, LEN);
	assert_fails(zns_crypt_open_unit(c, 3, "pages-1.img", 8, buf, LEN, tag, &err), -EBADMSG,
		     "unit 8");
	memcpy(buf, other, LEN);
	assert_fails(zns_crypt_open_unit(c, 4, "pages-1.img", 9, buf, LEN, tag, &err), -EBADMSG,
		     "not what");
	memcpy(buf, other, LEN);
	assert_fails(zns_crypt_open_unit(c, 3, "pages-2.img", 9, buf, LEN, tag, &err), -EBADMSG,
		     "pages-2");
	memcpy(buf, other, LEN);
	assert_fails(zns_crypt_open_unit(d, 3, "pages-1.img", 9, buf, LEN, tag, &err), -EBADMSG,
		     "not what");
	/* The same key, used under another checkpoint's id. */
	memcpy(d->key, c->key, ZNS_KEY_BYTES);
	memcpy(buf, other, LEN);
	assert_fails(zns_crypt_open_unit(d, 3, "pages-1.img", 9, buf, LEN, tag, &err), -EBADMSG,
		     "not what");
	/* Damage: the text is cut, it has one byte more, or any byte of it or of the tag is
	 * changed. */
	memcpy(buf, other, LEN);
	assert_fails(zns_crypt_open_unit(c, 3, "pages-1.img", 9, buf, LEN - 1, tag, &err), -EBADMSG,
		     "not what");
	for (size_t i = 0; i < LEN; i += 61) {
		memcpy(buf, other, LEN);
		buf[i] ^= 0x10;
		assert_fails(zns_crypt_open_unit(c, 3, "pages-1.img", 9, buf, LEN, tag, &err),
			     -EBADMSG, "not what");
	}
	for (size_t i = 0; i < ZNS_TAG_BYTES; i++) {
		memcpy(buf, other, LEN);
		tag[i] ^= 1;
		assert_fails(zns_crypt_open_unit(c, 3, "pages-1.img", 9, buf, LEN, tag, &err),
			     -EBADMSG, "not what");
		tag[i] ^= 1;
	}
	/* Equal bytes in different places do not look alike, in one checkpoint or in two. */
	memcpy(buf, plain, LEN);
	assert_ok(zns_crypt_seal_unit(c, 3, "pages-1.img", 10, buf, LEN, tag2, &err));
	assert_memory_not_equal(buf, other, LEN);
	memcpy(buf, plain, LEN);
	assert_ok(zns_crypt_seal_unit(c, 2, "pages-1.img", 9, buf, LEN, tag2, &err));
	assert_memory_not_equal(buf, other, LEN);
	/* The number that the manifest's seal has is no image's. */
	assert_fails(zns_crypt_seal_unit(c, UINT32_MAX, "x", 0, buf, LEN, tag2, &err), -EINVAL,
		     "too many images");
	zns_crypt_free(c);
	zns_crypt_free(d);
	zns_master_free(m);
}

/* A known answer, so that the format cannot change unnoticed: AES-256-GCM computed from format.md
 * with another program. */
static void known_answer(void **state)
{
	static const uint8_t want[16] = { 0x33, 0x24, 0xa5, 0x65, 0xb4, 0x3d, 0x0b, 0x6b,
					  0x48, 0xaf, 0x6e, 0x03, 0x72, 0xc3, 0x1e, 0x0d };
	static const uint8_t want_tag[ZNS_TAG_BYTES] = { 0x23, 0xa3, 0xcc, 0x0f, 0x29, 0x52,
							 0x2d, 0xcc, 0xb1, 0x33, 0x0b, 0x5f,
							 0x6b, 0x1b, 0x44, 0x61 };
	struct zns_master *m = make("m");
	uint8_t buf[16], tag[ZNS_TAG_BYTES];
	struct zns_crypt *c;

	assert_ok(zns_crypt_new(m, id_a, &c, &err));
	for (int i = 0; i < ZNS_KEY_BYTES; i++)
		c->key[i] = (uint8_t)i;
	memcpy(buf, "sixteen bytes ok", 16);
	assert_ok(zns_crypt_seal_unit(c, 3, "pages-1.img", 9, buf, sizeof(buf), tag, &err));
	assert_memory_equal(buf, want, sizeof(want));
	assert_memory_equal(tag, want_tag, sizeof(want_tag));
	zns_crypt_free(c);
	zns_master_free(m);
}

/* --- handles --- */

struct sealed {
	ZnsPb__Checkpoint c;
	ZnsPb__Manifest m;
	ZnsPb__Handle h;
	ZnsPb__CheckpointKey key;
	struct zns_handle_seal s;
	uint8_t seal[ZNS_TAG_BYTES];
};

static void sealed_init(struct sealed *s)
{
	zns_pb__checkpoint__init(&s->c);
	zns_pb__manifest__init(&s->m);
	zns_pb__handle__init(&s->h);
	zns_pb__checkpoint_key__init(&s->key);
	for (int i = 0; i < ZNS_TAG_BYTES; i++)
		s->seal[i] = (uint8_t)i;
	s->c.id = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)id_a };
	s->c.container = (char *)"web";
	s->c.created_ns = 1234567890123456789;
	s->c.crypt = &s->key;
	s->m.checkpoint = &s->c;
	s->m.has_seal = 1;
	s->m.seal = (ProtobufCBinaryData){ ZNS_TAG_BYTES, s->seal };
}

static void handles(void **state)
{
	static const uint8_t want[ZNS_MAC_BYTES] = {
		0xd8, 0x16, 0x16, 0x8e, 0x99, 0x02, 0x36, 0x37, 0x99, 0x66, 0x11,
		0x7a, 0xe0, 0x27, 0x8a, 0x7d, 0xff, 0x89, 0x93, 0xb9, 0x18, 0xdb,
		0x03, 0xb4, 0x47, 0x1f, 0x46, 0xb0, 0x5e, 0xe8, 0x01, 0xf1
	};
	struct zns_master *m = make("m");
	ProtobufCBinaryData *former;
	struct zns_crypt *c, *later;
	struct sealed s;
	size_t nr;

	assert_ok(zns_crypt_new(m, id_a, &c, &err));
	assert_ok(zns_crypt_new(m, id_a, &later, &err));
	for (int i = 0; i < ZNS_KEY_BYTES; i++)
		c->key[i] = (uint8_t)i;
	sealed_init(&s);
	assert_ok(zns_crypt_seal_handle(NULL, &s.c, s.seal, &s.h, &s.s, &err));
	assert_null(s.h.seal);
	assert_ok(zns_crypt_check_handle(c, &s.h, &s.m, &err)); /* none: nothing to say */
	assert_ok(zns_crypt_seal_handle(c, &s.c, s.seal, &s.h, &s.s, &err));
	assert_memory_equal(s.s.mac, want, sizeof(want));
	assert_memory_equal(s.s.key_id, zns_master_id(m), ZNS_KEY_ID_BYTES);
	assert_ok(zns_crypt_check_handle(c, &s.h, &s.m, &err));
	assert_ok(zns_crypt_check_handle(NULL, &s.h, &s.m, &err)); /* without the key */
	/* Another key, name, time or seal; no seal; no encryption. */
	assert_fails(zns_crypt_check_handle(later, &s.h, &s.m, &err), -EBADMSG, "not the one");
	s.c.container = (char *)"wex";
	assert_fails(zns_crypt_check_handle(c, &s.h, &s.m, &err), -EBADMSG, "not the one");
	s.c.container = (char *)"web";
	s.c.created_ns++;
	assert_fails(zns_crypt_check_handle(c, &s.h, &s.m, &err), -EBADMSG, "not the one");
	s.c.created_ns--;
	s.seal[15] ^= 1;
	assert_fails(zns_crypt_check_handle(c, &s.h, &s.m, &err), -EBADMSG, "not the one");
	s.seal[15] ^= 1;
	s.m.has_seal = 0;
	assert_fails(zns_crypt_check_handle(c, &s.h, &s.m, &err), -EBADMSG, "no seal");
	s.m.has_seal = 1;
	s.c.crypt = NULL;
	assert_fails(zns_crypt_check_handle(NULL, &s.h, &s.m, &err), -EBADMSG, "in its place");
	s.c.crypt = &s.key;
	/* Written without the key: it only knows that the checkpoint is encrypted. */
	s.key.key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES, (uint8_t *)zns_master_id(m) };
	zns_crypt_name_key(&s.key, &s.h, &s.s);
	assert_int_equal(s.h.seal->mac.len, 0);
	assert_ok(zns_crypt_check_handle(later, &s.h, &s.m, &err));
	s.c.crypt = NULL;
	assert_fails(zns_crypt_check_handle(NULL, &s.h, &s.m, &err), -EBADMSG, "in its place");
	s.c.crypt = &s.key;
	assert_ok(zns_crypt_seal_handle(c, &s.c, s.seal, &s.h, &s.s, &err));
	/* Written anew with another key: the old handle is still valid because the new manifest
	 * lists its MAC, however often that happens. */
	for (int i = 0; i < ZNS_FORMER_MACS_MAX; i++) {
		assert_ok(zns_crypt_former_macs(i ? later : c, &s.m, &former, &nr, &err));
		assert_int_equal(nr, i + 1);
		if (i)
			free(s.m.former_macs);
		s.m.former_macs = former;
		s.m.n_former_macs = nr;
		s.seal[0]++;
		assert_ok(zns_crypt_check_handle(later, &s.h, &s.m, &err));
	}
	/* Beyond the limit it is not. */
	assert_ok(zns_crypt_former_macs(later, &s.m, &former, &nr, &err));
	assert_int_equal(nr, ZNS_FORMER_MACS_MAX);
	free(s.m.former_macs);
	s.m.former_macs = former;
	assert_fails(zns_crypt_check_handle(later, &s.h, &s.m, &err), -EBADMSG, "not the one");
	free(former);
	assert_ok(zns_crypt_former_macs(NULL, &s.m, &former, &nr, &err));
	assert_null(former);
	assert_int_equal(nr, 0);
	zns_crypt_free(c);
	zns_crypt_free(later);
	zns_master_free(m);
}

/* Who requires encryption, and who accepts plain checkpoints nevertheless. */
static void plain_ones(void **state)
{
	uint8_t uuid[ZNS_UUID_LEN];
	struct zns_registered reg;

	zns_uuid_generate(uuid);
	assert_ok(zns_register(uuid, "emu:/nowhere", &err));
	assert_ok(zns_registered_by_uuid(uuid, &reg, &err));
	assert_ok(zns_plain_refused(&reg, false, id_a, &err));
	assert_fails(zns_plain_refused(&reg, true, id_a, &err), -EPERM,
		     "emu:/nowhere takes encrypted ones only");
	assert_ok(zns_config_set("encrypt-key", "file:/nowhere", &err));
	assert_fails(zns_plain_refused(&reg, false, id_a, &err), -EPERM, "zns.conf");
	assert_ok(zns_config_set("encrypt-key", NULL, &err));
	assert_ok(zns_register_key(uuid, "file:/nowhere", &err));
	assert_ok(zns_register_flags(uuid, 1, -1, &err));
	assert_ok(zns_registered_by_uuid(uuid, &reg, &err));
	assert_true(reg.encrypted && !reg.plain_ok);
	assert_fails(zns_plain_refused(&reg, false, id_a, &err), -EPERM, "noted");
	assert_ok(zns_register_flags(uuid, -1, 1, &err));
	/* the setting stays with the device */
	assert_ok(zns_register(uuid, "emu:/elsewhere", &err));
	assert_ok(zns_registered_by_uuid(uuid, &reg, &err));
	assert_true(reg.encrypted && reg.plain_ok);
	assert_ok(zns_plain_refused(&reg, true, id_a, &err));
	assert_ok(zns_register_flags(uuid, 0, 0, &err));
	assert_ok(zns_registered_by_uuid(uuid, &reg, &err));
	assert_false(reg.encrypted || reg.plain_ok);
	assert_ok(zns_unregister(uuid, &err));
}

/* --- keys of memory contexts --- */

static void memory_keys(void **state)
{
	static const uint8_t context[ZNS_UUID_LEN] = "context-aaaaaaaa";
	uint8_t unit[8192], was[8192], nonce[2][ZNS_MEMORY_NONCE], tag[ZNS_TAG_BYTES];
	uint8_t sealed[ZNS_MEMORY_SEALED], again[ZNS_MEMORY_SEALED];
	struct zns_memory_key *k, *next, *read;
	struct zns_master *m = make("memory-master");
	struct zns_crypt *a, *b;

	assert_ok(zns_crypt_new(m, id_a, &a, &err));
	assert_ok(zns_crypt_new(m, id_b, &b, &err));
	assert_ok(zns_memory_key_new(context, &k, &err));
	assert_int_equal(zns_memory_key_take(zns_memory_key_fd(k), id_a, &next, &err), -EPROTO);
	assert_ok(zns_memory_key_take(zns_memory_key_fd(k), context, &next, &err));
	for (size_t i = 0; i < sizeof(was); i++)
		was[i] = (uint8_t)(i * 7);
	memcpy(unit, was, sizeof(unit));
	assert_ok(zns_memory_seal(k, nonce[0], unit, sizeof(unit), tag, &err));
	assert_memory_not_equal(unit, was, 32);
	/* whoever takes over opens it, and has other nonces */
	assert_ok(zns_memory_open(next, nonce[0], unit, sizeof(unit), tag, &err));
	assert_memory_equal(unit, was, sizeof(unit));
	assert_ok(zns_memory_seal(next, nonce[1], unit, sizeof(unit), tag, &err));
	assert_memory_not_equal(nonce[0], nonce[1], ZNS_MEMORY_NONCE);
	/* through a checkpoint, and not through another one */
	assert_ok(zns_memory_key_put(k, a, sealed, &err));
	assert_ok(zns_memory_key_put(k, a, again, &err));
	assert_memory_not_equal(sealed, again, sizeof(sealed));
	assert_int_equal(zns_memory_key_get(b, sealed, sizeof(sealed), &read, &err), -EBADMSG);
	assert_int_equal(zns_memory_key_get(a, sealed, sizeof(sealed) - 1, &read, &err), -EBADMSG);
	for (size_t i = 0; i < sizeof(sealed); i++) {
		sealed[i] ^= 1;
		assert_int_equal(zns_memory_key_get(a, sealed, sizeof(sealed), &read, &err),
				 -EBADMSG);
		sealed[i] ^= 1;
	}
	assert_ok(zns_memory_key_get(a, sealed, sizeof(sealed), &read, &err));
	assert_memory_equal(zns_memory_key_context(read), context, ZNS_UUID_LEN);
	assert_int_equal(zns_memory_seal(read, nonce[0], was, 16, tag, &err), -EPERM);
	nonce[1][3] ^= 1;
	assert_int_equal(zns_memory_open(read, nonce[1], unit, sizeof(unit), tag, &err), -EBADMSG);
	zns_memory_key_free(read);
	zns_memory_key_free(next);
	zns_memory_key_free(k);
	zns_crypt_free(a);
	zns_crypt_free(b);
	zns_master_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(key_files, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(refused_keys, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(keyring_keys, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(secret_memory, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(wiped_memory, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(seals_of_one_key, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(seal_head, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(wiped_stack, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(wrapped_keys, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(units, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(known_answer, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(handles, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(plain_ones, emu_begin, emu_end),
		cmocka_unit_test_setup_teardown(memory_keys, emu_begin, emu_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
