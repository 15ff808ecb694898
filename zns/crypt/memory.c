/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keys of memory contexts, and their units: see zns/crypt_memory.h. */
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <openssl/rand.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include "crypt_priv.h"
#include "zns/crypt_memory.h"

#define MAGIC "ZNSMKEY1"
#define LEN 4096
#define SECRET_MAGIC 0x5345434dU /* value in linux/magic.h since Linux 5.14 */

static const char unit_label[] = "zns-criu memory 1", key_label[] = "zns-criu 1 memory key";

/* A context's key in memory that all pagers of the context share. */
struct shared_key {
	char magic[8];
	uint8_t context[ZNS_UUID_LEN];
	uint8_t key[ZNS_KEY_BYTES];
	_Atomic uint32_t writers; /* how many writers have used this key so far */
};

struct zns_memory_key {
	struct shared_key *s;
	int fd; /* descriptor of the shared memory; -1: the key was read from a checkpoint */
	uint32_t writer;
	_Atomic uint64_t written;
	EVP_CIPHER *cipher;
};

_Static_assert(sizeof(uint32_t) + sizeof(uint64_t) == ZNS_MEMORY_NONCE, "a nonce is both numbers");

static int make_fd(void)
{
	int fd = (int)syscall(SYS_memfd_secret, O_CLOEXEC), ret;

	if (fd < 0) {
		fd = memfd_create("zns-mem key", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd >= 0 &&
		    (ftruncate(fd, LEN) ||
		     fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))) {
			ret = -errno;
			close(fd);
			return ret;
		}
	} else if (ftruncate(fd, LEN)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd < 0 ? -errno : fd;
}

static struct zns_memory_key *blank(struct zns_err *err)
{
	struct zns_memory_key *k = calloc(1, sizeof(*k));

	if (!k) {
		zns_fail(err, -ENOMEM, "no memory for a key");
		return NULL;
	}
	k->fd = -1;
	k->cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
	if (k->cipher)
		return k;
	free(k);
	zns_fail(err, -EIO, "libcrypto has no AES-256-GCM");
	return NULL;
}

/* Maps the key's page. It stays mapped, and so locked in memory, as long as the key is used. */
static int map(struct zns_memory_key *k, struct zns_err *err)
{
	struct statfs fs;
	void *at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, k->fd, 0);

	if (at == MAP_FAILED)
		return zns_fail_sys(err, -errno, "no memory for a key");
	k->s = at;
	/* memory of memfd_secret is always locked, and mlock() refuses it */
	if ((fstatfs(k->fd, &fs) || (uint64_t)fs.f_type != SECRET_MAGIC) && mlock(at, LEN))
		return zns_fail_sys(err, -errno, "cannot lock memory for a key (ulimit -l)");
	madvise(at, LEN, MADV_DONTDUMP);
	madvise(at, LEN, MADV_DONTFORK);
	return 0;
}

static int become_writer(struct zns_memory_key *k, struct zns_err *err)
{
	uint32_t had = k->s->writers;

	do {
		if (had == UINT32_MAX)
			return zns_fail(err, -EOVERFLOW, "this key has had too many writers");
	} while (!atomic_compare_exchange_strong(&k->s->writers, &had, had + 1));
	k->writer = had;
	return 0;
}

/* Gives @k to the caller and registers it as a writer. If @ret is an error, or this fails, @k is
 * freed. */
static int hand_out(struct zns_memory_key *k, int ret, struct zns_memory_key **out,
		    struct zns_err *err)
{
	if (!ret)
		ret = become_writer(k, err);
	if (ret)
		zns_memory_key_free(k);
	else
		*out = k;
	return ret;
}

int zns_memory_key_new(const uint8_t context[ZNS_UUID_LEN], struct zns_memory_key **out,
		       struct zns_err *err)
{
	struct zns_memory_key *k = blank(err);
	int ret;

	*out = NULL;
	if (!k)
		return err && err->code ? err->code : -ENOMEM;
	k->fd = make_fd();
	ret = k->fd < 0 ? zns_fail_sys(err, k->fd, "no memory for a key") : map(k, err);
	if (!ret) {
		memcpy(k->s->magic, MAGIC, sizeof(k->s->magic));
		memcpy(k->s->context, context, ZNS_UUID_LEN);
		if (RAND_priv_bytes(k->s->key, ZNS_KEY_BYTES) != 1)
			ret = zns_fail(err, -EIO, "libcrypto gives no random bytes for a key");
	}
	return hand_out(k, ret, out, err);
}

static int not_a_key(struct zns_err *err)
{
	return zns_fail(err, -EPROTO, "this is not the key of the memory context");
}

int zns_memory_key_take(int fd, const uint8_t context[ZNS_UUID_LEN], struct zns_memory_key **out,
			struct zns_err *err)
{
	struct zns_memory_key *k = blank(err);
	struct stat st;
	int ret = 0;

	*out = NULL;
	if (!k)
		return err && err->code ? err->code : -ENOMEM;
	k->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (k->fd < 0)
		ret = zns_fail_sys(err, -errno,
				   "cannot duplicate the descriptor of a memory context's key");
	else if (fstat(k->fd, &st) || !S_ISREG(st.st_mode) || st.st_size != LEN)
		ret = not_a_key(err);
	if (!ret)
		ret = map(k, err);
	if (!ret && (memcmp(k->s->magic, MAGIC, sizeof(k->s->magic)) ||
		     memcmp(k->s->context, context, ZNS_UUID_LEN)))
		ret = not_a_key(err);
	return hand_out(k, ret, out, err);
}

int zns_memory_key_fd(const struct zns_memory_key *k)
{
	return k->fd;
}

const uint8_t *zns_memory_key_context(const struct zns_memory_key *k)
{
	return k->s->context;
}

void zns_memory_key_free(struct zns_memory_key *k)
{
	if (!k)
		return;
	if (k->fd < 0)
		secret_free(k->s, sizeof(*k->s));
	else if (k->s)
		munmap(k->s, LEN); /* not wiped: other processes use the same memory */
	if (k->fd >= 0)
		close(k->fd);
	EVP_CIPHER_free(k->cipher);
	free(k);
}

static struct aead unit_aead(const struct zns_memory_key *k, const uint8_t *nonce)
{
	return (struct aead){ k->s->key,
			      nonce,
			      { unit_label, k->s->context },
			      { sizeof(unit_label), ZNS_UUID_LEN } };
}

int zns_memory_seal(struct zns_memory_key *k, uint8_t nonce[ZNS_MEMORY_NONCE], uint8_t *buf,
		    size_t len, uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err)
{
	uint64_t nr = k->written++;
	struct aead a;

	if (k->fd < 0)
		return zns_fail(err, -EPERM,
				"a memory context's key from a checkpoint can only decrypt");
	for (int i = 0; i < 4; i++)
		nonce[i] = (uint8_t)(k->writer >> 8 * i);
	for (int i = 0; i < 8; i++)
		nonce[4 + i] = (uint8_t)(nr >> 8 * i);
	a = unit_aead(k, nonce);
	return aead_seal(&a, k->cipher, buf, len, tag) ?
		       zns_fail(err, -EIO,
				"libcrypto cannot encrypt memory: check OpenSSL's configuration") :
		       0;
}

int zns_memory_open(const struct zns_memory_key *k, const uint8_t nonce[ZNS_MEMORY_NONCE],
		    uint8_t *buf, size_t len, const uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err)
{
	struct aead a = unit_aead(k, nonce);
	int ret = aead_open(&a, k->cipher, buf, len, tag);

	if (ret == -EBADMSG)
		return zns_fail(err, ret, "memory of a context is not what was encrypted");
	return ret ? zns_fail(err, ret, "libcrypto cannot decrypt memory") : 0;
}

int zns_memory_key_put(const struct zns_memory_key *k, const struct zns_crypt *c,
		       uint8_t out[ZNS_MEMORY_SEALED], struct zns_err *err)
{
	uint8_t *text = zns_crypt_note_text(out);

	memcpy(text, k->s->context, ZNS_UUID_LEN);
	memcpy(text + ZNS_UUID_LEN, k->s->key, ZNS_KEY_BYTES);
	if (!zns_crypt_seal_note(c, key_label, out, ZNS_UUID_LEN + ZNS_KEY_BYTES, err))
		return 0;
	explicit_bzero(out, ZNS_MEMORY_SEALED);
	return err && err->code ? err->code : -EIO;
}

int zns_memory_key_get(const struct zns_crypt *c, const uint8_t *sealed, size_t len,
		       struct zns_memory_key **out, struct zns_err *err)
{
	uint8_t note[ZNS_MEMORY_SEALED], *text = zns_crypt_note_text(note);
	struct zns_memory_key *k;
	int ret;

	*out = NULL;
	if (len != sizeof(note))
		return zns_fail(err, -EBADMSG, "the key of a memory context is damaged");
	k = blank(err);
	if (k)
		k->s = secret_alloc(sizeof(*k->s), err);
	if (!k || !k->s) {
		zns_memory_key_free(k);
		return err && err->code ? err->code : -ENOMEM;
	}
	memcpy(note, sealed, sizeof(note));
	ret = zns_crypt_open_note(c, key_label, note, ZNS_UUID_LEN + ZNS_KEY_BYTES, err);
	if (!ret) {
		memcpy(k->s->context, text, ZNS_UUID_LEN);
		memcpy(k->s->key, text + ZNS_UUID_LEN, ZNS_KEY_BYTES);
		*out = k;
	} else {
		zns_memory_key_free(k);
		zns_wrap(err, "the key of a memory context");
	}
	explicit_bzero(note, sizeof(note));
	return ret;
}
