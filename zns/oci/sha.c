/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * See oci.h: computes digests. SHA-256 takes as long as all else that is done to a byte of a
 * checkpoint. So for a large input a thread hashes, while the caller reads the next bytes.
 */
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "flow.h"
#include "oci.h"
#include "zns/process.h"
#include "zns/util.h"

#define LARGE MIB(1)
#define PIECE KIB(256)
#define FLOW_BYTES MIB(16) /* as many as a reader of zones delivers at once */

struct ctl_sha {
	EVP_MD_CTX *ctx; /* used by the thread while it runs */
	bool bad; /* an earlier call has failed */
	bool large;
	uint64_t bytes;
	pthread_t thread;
	struct ctl_flow *flow; /* NULL: there is no thread */
};

struct ctl_sha *ctl_sha_new(void)
{
	struct ctl_sha *s = calloc(1, sizeof(*s));

	if (s)
		s->ctx = EVP_MD_CTX_new();
	if (s && s->ctx && EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL))
		return s;
	if (s)
		EVP_MD_CTX_free(s->ctx);
	free(s);
	return NULL;
}

static void hash(struct ctl_sha *s, const void *buf, size_t len)
{
	s->bad |= !EVP_DigestUpdate(s->ctx, buf, len);
}

static void *hasher(void *arg)
{
	struct ctl_sha *s = arg;
	const uint8_t *at;
	size_t n;

	while ((n = ctl_flow_next(s->flow, PIECE, &at))) {
		hash(s, at, n);
		ctl_flow_done(s->flow, n);
	}
	return NULL;
}

/* Starts the thread. If that fails, the caller hashes. */
static void start(struct ctl_sha *s)
{
	s->large = true;
	s->flow = ctl_flow_new(FLOW_BYTES);
	if (s->flow && zns_thread_start(&s->thread, hasher, s)) {
		ctl_flow_free(s->flow);
		s->flow = NULL;
	}
}

void ctl_sha_add(struct ctl_sha *s, const void *buf, size_t len)
{
	s->bytes += len;
	if (!s->large && s->bytes > LARGE)
		start(s);
	if (s->flow)
		ctl_flow_put(s->flow, buf, len);
	else
		hash(s, buf, len);
}

/* On an error @digest is "", which is never a valid digest, so incomplete data are not accepted. */
void ctl_sha_end(struct ctl_sha *s, char digest[CTL_OCI_DIGEST])
{
	uint8_t sum[EVP_MAX_MD_SIZE];

	if (s->flow) {
		ctl_flow_end(s->flow);
		pthread_join(s->thread, NULL);
		ctl_flow_free(s->flow);
	}
	*digest = 0;
	if (!s->bad && EVP_DigestFinal_ex(s->ctx, sum, NULL)) {
		strcpy(digest, "sha256:");
		ctl_oci_hex(sum, CTL_OCI_SHA_BYTES, digest + 7);
	}
	EVP_MD_CTX_free(s->ctx);
	free(s);
}
