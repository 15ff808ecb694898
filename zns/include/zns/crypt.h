/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CRYPT_H
#define ZNS_CRYPT_H
/*
 * Encryption at rest (Documentation/inside/format.md, "Encryption"). Each checkpoint has a random key of
 * its own; it encrypts the units of its images with AES-256-GCM, and is itself stored encrypted
 * ("wrapped") with the machine's master key.
 *
 * A master key is named by a KEYSPEC: "file:PATH" or "keyring:DESCRIPTION" (a key of type "user" in
 * the caller's keyrings or root's user keyring). It is 32 random bytes, raw or as 64 hexadecimal
 * digits and a newline.
 *
 * Keys are in locked memory that no core dump has, and wiped when freed. No message ever shows more
 * of one than its fingerprint, 16 hexadecimal digits.
 *
 * Threads: functions with a const object may be called from several threads at once.
 * Errors:
 *   -ENOKEY        there is no key, or the wrapped key is gone
 *   -EKEYREJECTED  there is a key, but another one is needed
 *   -EPERM         others could read the key file, or plain checkpoints are refused here
 *   -EBADMSG       what was read is not what was written
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/config.h"
#include "zns/err.h"
#include "zns-handle.pb-c.h"
#include "zns-record.pb-c.h"

#define ZNS_CIPHER_AES_256_GCM 1 /* checkpoint_key.cipher */
#define ZNS_KEY_BYTES 32
#define ZNS_KEY_ID_BYTES 8 /* size of a fingerprint */
#define ZNS_KEY_ID_STR (2 * ZNS_KEY_ID_BYTES + 1)
#define ZNS_TAG_BYTES 16 /* size of one unit's tag */
#define ZNS_WRAPPED_BYTES 60 /* nonce 12, encrypted key 32, tag 16 */
#define ZNS_MAC_BYTES 32 /* size of a handle's MAC */
#define ZNS_FORMER_MACS_MAX 64 /* most MACs of earlier versions in one manifest */

/* --- master keys (key.c, keyring.c) --- */
struct zns_master;

int zns_master_load(const char *spec, struct zns_master **out, struct zns_err *err);
void zns_master_free(struct zns_master *m); /* NULL is fine */
const uint8_t *zns_master_id(const struct zns_master *m); /* ZNS_KEY_ID_BYTES, the master's */
char *zns_key_id_format(const uint8_t id[ZNS_KEY_ID_BYTES], char out[ZNS_KEY_ID_STR]);

/* A new random key in a new file, 0600, durable. -EEXIST: something is there already. */
int zns_master_create(const char *path, struct zns_err *err);

/* Does @spec have the form of a KEYSPEC? The file or key need not exist. "file:" paths become
 * absolute. */
int zns_key_spec_check(const char *spec, char *out, size_t len, struct zns_err *err);

/* --- which key encrypts a device's checkpoints (device.c) --- */

/* The KEYSPEC for @reg: from its entry in devices.d ("key = …"), else "encrypt-key" of zns.conf.
 * -ENOKEY: neither is set. *of_host: zns.conf has one, which also requires that new checkpoints of
 * this machine are encrypted. */
int zns_key_spec_of(const struct zns_registered *reg, char *out, size_t len, bool *of_host,
		    struct zns_err *err);

/* Finds the key to encrypt a new checkpoint on @reg with. @want: the key that the device requires,
 * NULL: none. *out is NULL if neither the device nor zns.conf requires encryption. */
int zns_master_for_dump(const struct zns_registered *reg, const uint8_t *want,
			struct zns_master **out, struct zns_err *err);

/*
 * Must new data on @reg be encrypted? The device (@wanted), its entry in devices.d and zns.conf
 * decide, as for zns_master_for_dump(); no key is needed. 1, 0 or -errno.
 */
int zns_encryption_wanted(const struct zns_registered *reg, bool wanted, struct zns_err *err);

/*
 * May a checkpoint be plain? -EPERM: zns.conf, this machine's entry of the device or the device
 * itself (@wanted) requires encryption, so the plain checkpoint may be a forgery in place of an
 * encrypted one. 0: none of them does, or the administrator accepts plain ones (`znsctl key plain
 * accept`).
 */
int zns_plain_refused(const struct zns_registered *reg, bool wanted, const uint8_t id[ZNS_UUID_LEN],
		      struct zns_err *err);

/* --- one checkpoint --- */
struct zns_crypt;

/* A new random key for the checkpoint @id, wrapped with @m. */
int zns_crypt_new(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
		  struct zns_crypt **out, struct zns_err *err);
/* The key that @k holds wrapped. */
int zns_crypt_open(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
		   const ZnsPb__CheckpointKey *k, struct zns_crypt **out, struct zns_err *err);
/*
 * Get the key of the checkpoint on @reg that has the manifest @m, with the key of its record, as
 * zns_manifest_read gives it. The manifest's seal is checked. *out is NULL if the checkpoint is
 * plain. -EPERM: it is plain, and that is refused (zns_plain_refused; @wanted: the device asks for
 * encryption).
 */
int zns_crypt_of(const struct zns_registered *reg, bool wanted, const ZnsPb__Manifest *m,
		 struct zns_crypt **out, struct zns_err *err);
void zns_crypt_free(struct zns_crypt *c); /* NULL is fine */

/* The wrapped key for the checkpoint's record; malloc'ed, freed with the record. NULL: no
 * memory. */
ZnsPb__CheckpointKey *zns_crypt_record(const struct zns_crypt *c);

/*
 * Unit @unit of image number @image (its place in the manifest) named @name, in place. Every
 * (image, unit) of a checkpoint is sealed once: both together are the nonce. -EBADMSG: not what was
 * sealed.
 */
int zns_crypt_seal_unit(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit,
			uint8_t *buf, size_t len, uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
int zns_crypt_open_unit(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit,
			uint8_t *buf, size_t len, const uint8_t tag[ZNS_TAG_BYTES],
			struct zns_err *err);

/* The tag over names, sizes and tags of all images, and the parent. */
int zns_crypt_seal_manifest(const struct zns_crypt *c, const ZnsPb__Manifest *m,
			    uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);

/* The MAC that binds a handle to one encrypted checkpoint (handle_mac.c). @record: has the
 * container and the time that the handle names. @seal: the manifest's seal, ZNS_TAG_BYTES. */
int zns_crypt_handle_mac(const struct zns_crypt *c, const ZnsPb__Checkpoint *record,
			 const uint8_t *seal, uint8_t mac[ZNS_MAC_BYTES], struct zns_err *err);
struct zns_handle_seal {
	ZnsPb__HandleSeal pb;
	uint8_t key_id[ZNS_KEY_ID_BYTES], mac[ZNS_MAC_BYTES];
};
/* Put the seal into @h; it points to @s. @c NULL: the checkpoint is plain, and @h stays as it is.
 */
int zns_crypt_seal_handle(const struct zns_crypt *c, const ZnsPb__Checkpoint *record,
			  const uint8_t *seal, ZnsPb__Handle *h, struct zns_handle_seal *s,
			  struct zns_err *err);
/* Like zns_crypt_seal_handle, for callers without the checkpoint's key: the handle then says only
 * that the checkpoint is encrypted, so that a plain one is not accepted in its place. @k: the key
 * from its record. */
void zns_crypt_name_key(const ZnsPb__CheckpointKey *k, ZnsPb__Handle *h, struct zns_handle_seal *s);
/* Was the handle @h written for the checkpoint @m, or for an earlier version of it? -EBADMSG: it
 * was not, or the checkpoint is plain. @c is the checkpoint's key; without it (NULL) two encrypted
 * checkpoints cannot be told apart. */
int zns_crypt_check_handle(const struct zns_crypt *c, const ZnsPb__Handle *h,
			   const ZnsPb__Manifest *m, struct zns_err *err);
/*
 * The former_macs that a new version of @m under its id must have: those of @m and, last, the one
 * that handles of @m say. *out is malloc'ed in one piece, with what it points to. *nr is 0, and
 * *out NULL, if @m is plain.
 */
int zns_crypt_former_macs(const struct zns_crypt *c, const ZnsPb__Manifest *m,
			  ProtobufCBinaryData **out, size_t *nr, struct zns_err *err);

/*
 * A note about the checkpoint (note.c): ZNS_NOTE_EXTRA bytes more than its text, which is @len
 * bytes at zns_crypt_note_text() of @note and is encrypted in place. @label says what kind of note
 * it is. -EBADMSG: not what was sealed for this checkpoint under this label.
 */
#define ZNS_NOTE_NONCE 12
#define ZNS_NOTE_EXTRA (ZNS_NOTE_NONCE + ZNS_TAG_BYTES)
static inline uint8_t *zns_crypt_note_text(uint8_t *note)
{
	return note + ZNS_NOTE_NONCE;
}
int zns_crypt_seal_note(const struct zns_crypt *c, const char *label, uint8_t *note, size_t len,
			struct zns_err *err);
int zns_crypt_open_note(const struct zns_crypt *c, const char *label, uint8_t *note, size_t len,
			struct zns_err *err);

/* The same key, wrapped with another master key. *out is malloc'ed
 * (zns_pb__checkpoint_key__free_unpacked). */
int zns_crypt_rewrap(const struct zns_master *from, const struct zns_master *to,
		     const uint8_t id[ZNS_UUID_LEN], const ZnsPb__CheckpointKey *k,
		     ZnsPb__CheckpointKey **out, struct zns_err *err);

/* Are the lengths in a record's wrapped key possible ones? Needs no key. */
bool zns_crypt_record_sane(const ZnsPb__CheckpointKey *k);

/* To be called before the process holds keys and plain data: forbids core dumps and tracing, and
 * swap as far as its limits allow. */
void zns_crypt_harden(void);

#endif
