/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CRYPT_H
#define ZNS_CRYPT_H
/*
 * Encryption at rest (Documentation/inside/format.md, "Encryption"). Each checkpoint has a random
 * key of its own; it encrypts the units of its images with AES-256-GCM, and is itself stored
 * encrypted ("wrapped") with the machine's master key.
 *
 * A master key is named by a KEYSPEC: "file:PATH" or "keyring:DESCRIPTION" (a key of type "user" in
 * the caller's keyrings or root's user keyring). It is 32 random bytes, raw or as 64 hexadecimal
 * digits and a newline.
 *
 * Keys are in locked memory that is not part of core dumps, and are wiped when freed. Of a key,
 * messages show only the fingerprint, 16 hexadecimal digits.
 *
 * Threads: functions with a const object may be called from several threads at once.
 * Errors:
 *   -ENOKEY        there is no key, or the wrapped key is gone
 *   -EKEYREJECTED  there is a key, but another one is needed
 *   -EPERM         others could read the key file, or plain checkpoints are refused on this machine
 *   -EBADMSG       what was read is not what was written
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/config.h"
#include "zns/err.h"
#include "zns-handle.pb-c.h"
#include "zns-record.pb-c.h"

#define ZNS_CIPHER_AES_256_GCM 1 /* value of ZnsPb__CheckpointKey.cipher */
#define ZNS_KEY_BYTES 32
#define ZNS_KEY_ID_BYTES 8 /* bytes of a key's fingerprint */
#define ZNS_KEY_ID_STR (2 * ZNS_KEY_ID_BYTES + 1)
#define ZNS_TAG_BYTES 16 /* bytes of one unit's tag */
#define ZNS_WRAPPED_BYTES 60 /* bytes of a wrapped key: nonce 12, encrypted key 32, tag 16 */
#define ZNS_MAC_BYTES 32 /* bytes of a handle's MAC */
#define ZNS_FORMER_MACS_MAX 64 /* largest number of MACs of earlier versions in one manifest */

/* --- master keys (key.c, keyring.c) --- */
struct zns_master;

int zns_master_load(const char *spec, struct zns_master **out, struct zns_err *err);
void zns_master_free(struct zns_master *m); /* @m may be NULL */
/* fingerprint of the master key, ZNS_KEY_ID_BYTES */
const uint8_t *zns_master_id(const struct zns_master *m);
char *zns_key_id_format(const uint8_t id[ZNS_KEY_ID_BYTES], char out[ZNS_KEY_ID_STR]);

/* Creates a file (mode 0600) with a new random key, durably. -EEXIST: @path exists already. */
int zns_master_create(const char *path, struct zns_err *err);

/* Does @spec have the form of a KEYSPEC? The file or key need not exist. The path of "file:" is
 * made absolute. */
int zns_key_spec_check(const char *spec, char *out, size_t len, struct zns_err *err);

/* --- which key encrypts a device's checkpoints (device.c) --- */

/* Finds the KEYSPEC for @reg: from its entry in devices.d ("key = …"), else "encrypt-key" of
 * zns.conf. -ENOKEY: neither is set. *of_host: zns.conf has an "encrypt-key", which also means that
 * all new checkpoints of this machine must be encrypted. */
int zns_key_spec_of(const struct zns_registered *reg, char *out, size_t len, bool *of_host,
		    struct zns_err *err);

/* Finds the key to encrypt a new checkpoint on @reg with. @want: fingerprint of the key that the
 * device requires; NULL: none. *out is NULL if neither the device nor zns.conf requires
 * encryption. */
int zns_master_for_dump(const struct zns_registered *reg, const uint8_t *want,
			struct zns_master **out, struct zns_err *err);

/*
 * Must new data on @reg be encrypted? Decided by the device (@wanted), its entry in devices.d and
 * zns.conf, as for zns_master_for_dump(); the key itself is not needed. Returns 1, 0 or -errno.
 */
int zns_encryption_wanted(const struct zns_registered *reg, bool wanted, struct zns_err *err);

/*
 * May the checkpoint @id be plain? -EPERM: zns.conf, this machine's entry of the device or the
 * device itself (@wanted) requires encryption, so a plain checkpoint may be a forgery of an
 * encrypted one. 0: none of them requires encryption, or the administrator accepts plain
 * checkpoints (`znsctl key plain accept`).
 */
int zns_plain_refused(const struct zns_registered *reg, bool wanted, const uint8_t id[ZNS_UUID_LEN],
		      struct zns_err *err);

/* --- one checkpoint --- */
struct zns_crypt;

/* Makes a new random key for the checkpoint @id and wraps it with @m. */
int zns_crypt_new(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
		  struct zns_crypt **out, struct zns_err *err);
/* Unwraps the checkpoint's key @k with the master key @m. */
int zns_crypt_open(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
		   const ZnsPb__CheckpointKey *k, struct zns_crypt **out, struct zns_err *err);
/*
 * Gets the key of the checkpoint on @reg that has the manifest @m and, in its record, a wrapped key
 * (as zns_manifest_read returns it). Verifies the manifest's seal. *out is NULL if the checkpoint
 * is plain. -EPERM: it is plain, and plain checkpoints are refused (zns_plain_refused; @wanted: the
 * device requires encryption).
 */
int zns_crypt_of(const struct zns_registered *reg, bool wanted, const ZnsPb__Manifest *m,
		 struct zns_crypt **out, struct zns_err *err);
void zns_crypt_free(struct zns_crypt *c); /* @c may be NULL */

/* Returns the wrapped key for the checkpoint's record; malloc'ed, freed with the record. NULL: out
 * of memory. */
ZnsPb__CheckpointKey *zns_crypt_record(const struct zns_crypt *c);

/*
 * Encrypt (seal) or decrypt (open) a unit in place: number @unit of the image @name, which is
 * number @image in the manifest. Each (image, unit) of a checkpoint may be sealed only once, since
 * both together are the nonce. -EBADMSG: the unit is not the one that was sealed.
 */
int zns_crypt_seal_unit(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit,
			uint8_t *buf, size_t len, uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
int zns_crypt_open_unit(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit,
			uint8_t *buf, size_t len, const uint8_t tag[ZNS_TAG_BYTES],
			struct zns_err *err);

/* Computes or verifies the manifest's seal: the tag over names, sizes and tags of all images, and
 * over the parent. */
int zns_crypt_seal_manifest(const struct zns_crypt *c, const ZnsPb__Manifest *m,
			    uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);

/* Computes the MAC that binds a handle to one encrypted checkpoint (handle_mac.c). @record provides
 * the container and the time that the handle names. @seal: the manifest's seal, ZNS_TAG_BYTES. */
int zns_crypt_handle_mac(const struct zns_crypt *c, const ZnsPb__Checkpoint *record,
			 const uint8_t *seal, uint8_t mac[ZNS_MAC_BYTES], struct zns_err *err);
struct zns_handle_seal {
	ZnsPb__HandleSeal pb;
	uint8_t key_id[ZNS_KEY_ID_BYTES], mac[ZNS_MAC_BYTES];
};
/* Stores the MAC in @h, which then points into @s. @c NULL: the checkpoint is plain, and @h is not
 * changed. */
int zns_crypt_seal_handle(const struct zns_crypt *c, const ZnsPb__Checkpoint *record,
			  const uint8_t *seal, ZnsPb__Handle *h, struct zns_handle_seal *s,
			  struct zns_err *err);
/* Like zns_crypt_seal_handle, for callers that do not have the checkpoint's key. The handle then
 * only says that the checkpoint is encrypted, so that a plain one is not accepted in its place. @k:
 * the wrapped key from the checkpoint's record. */
void zns_crypt_name_key(const ZnsPb__CheckpointKey *k, ZnsPb__Handle *h, struct zns_handle_seal *s);
/* Was the handle @h written for the checkpoint @m, or for an earlier version of it? -EBADMSG: no,
 * or the checkpoint is plain. @c is the checkpoint's key. Without it (NULL) the function cannot
 * distinguish two encrypted checkpoints. */
int zns_crypt_check_handle(const struct zns_crypt *c, const ZnsPb__Handle *h,
			   const ZnsPb__Manifest *m, struct zns_err *err);
/*
 * Returns the former_macs for a new version of @m under the same id: those of @m, followed by the
 * MAC that handles of @m have. *out and what it points to are one malloc'ed block. If @m is plain,
 * *nr is 0 and *out is NULL.
 */
int zns_crypt_former_macs(const struct zns_crypt *c, const ZnsPb__Manifest *m,
			  ProtobufCBinaryData **out, size_t *nr, struct zns_err *err);

/*
 * Encrypts or decrypts a note about the checkpoint (note.c). A note is ZNS_NOTE_EXTRA bytes longer
 * than its text. The text is the @len bytes at zns_crypt_note_text() of @note, and is encrypted in
 * place. @label names the kind of note. -EBADMSG: the note was not sealed for this checkpoint under
 * this label.
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

/* Wraps the checkpoint's key with another master key. *out is malloc'ed
 * (zns_pb__checkpoint_key__free_unpacked). */
int zns_crypt_rewrap(const struct zns_master *from, const struct zns_master *to,
		     const uint8_t id[ZNS_UUID_LEN], const ZnsPb__CheckpointKey *k,
		     ZnsPb__CheckpointKey **out, struct zns_err *err);

/* Are the lengths of the fields of a wrapped key valid? Needs no key. */
bool zns_crypt_record_sane(const ZnsPb__CheckpointKey *k);

/* Forbids core dumps and tracing of this process, and locks its memory against swapping as far as
 * its limits allow. To be called before the process holds keys and plaintext. */
void zns_crypt_harden(void);

#endif
