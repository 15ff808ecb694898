/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CHAIN_H
#define ZNS_CHAIN_H
/*
 * An incremental checkpoint and its parents, read by one reader: one cache and one set of workers,
 * however long the chain is. Level 0 is the checkpoint, level 1 its parent, and so on; a checkpoint
 * without a parent is a chain of one. Threads: as the reader.
 */
#include "zns/config.h"
#include "zns/reader.h"

/* most checkpoints in a chain; a restore keeps a pagemap of each task in memory for each of them */
#define ZNS_CHAIN_MAX 256

struct zns_chain;

/*
 * Reads and checks the manifests of @nr records, where each is the parent of the one before it, and
 * finds the keys of those that are encrypted. The records are not needed afterwards. -EBADMSG:
 * damaged, or not a chain. @wanted, -ENOKEY and other errors: see zns_crypt_of. With @p->sealed no
 * keys are looked for.
 */
int zns_chain_open(const struct zns_reader_params *p, const struct zns_registered *reg, bool wanted,
		   ZnsPb__Checkpoint *const *records, size_t nr, struct zns_chain **out,
		   struct zns_err *err);
void zns_chain_close(struct zns_chain *c); /* @c may be NULL */

uint32_t zns_chain_levels(const struct zns_chain *c);
const ZnsPb__Manifest *zns_chain_manifest(const struct zns_chain *c, uint32_t level);
/* NULL: the level is not encrypted */
const struct zns_crypt *zns_chain_crypt(const struct zns_chain *c, uint32_t level);
/* a reader of the images of all levels */
struct zns_reader *zns_chain_reader(const struct zns_chain *c);
/* NULL: there is no such level or image. */
struct zns_rimage *zns_chain_find(const struct zns_chain *c, uint32_t level, const char *name);
/* Bytes of all images of all levels, except parts of composed ones. */
uint64_t zns_chain_bytes(const struct zns_chain *c);

#endif
