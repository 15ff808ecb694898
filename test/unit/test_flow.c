/* SPDX-License-Identifier: GPL-2.0-only */
/* Bytes from one thread to another, and digests that a thread computes (zns/ctl). */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <openssl/evp.h>

#include "../../zns/oci/flow.h"
#include "../../zns/oci/oci.h"
#include "../../zns/transfer/patience.h"
#include "zns/util.h"

#define RING 4096U

static uint32_t roll(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(*seed >> 33);
}

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * 2654435761U >> 13);
}

struct putter {
	struct ctl_flow *flow;
	uint64_t bytes, seed;
	uint32_t most; /* bytes of a piece */
	int ret;
};

static void *put(void *arg)
{
	struct putter *p = arg;
	uint8_t *buf = malloc(p->most);

	for (uint64_t at = 0; at < p->bytes && !p->ret;) {
		size_t n = 1 + roll(&p->seed) % p->most;

		n = zns_min(n, p->bytes - at);
		for (size_t i = 0; i < n; i++)
			buf[i] = byte_at(at + i);
		p->ret = ctl_flow_put(p->flow, buf, n);
		at += n;
	}
	ctl_flow_end(p->flow);
	free(buf);
	return NULL;
}

/* All of @bytes arrives, in order, and then the end. */
static void passes(uint64_t bytes, uint32_t piece, uint32_t taken)
{
	struct putter p = { .flow = ctl_flow_new(RING), .bytes = bytes, .seed = 7, .most = piece };
	uint8_t *buf = malloc(taken);
	uint64_t seed = 9, at = 0;
	pthread_t t;
	size_t n, want;

	pthread_create(&t, NULL, put, &p);
	do {
		want = 1 + roll(&seed) % taken;
		n = ctl_flow_take(p.flow, buf, want);
		for (size_t i = 0; i < n; i++)
			if (buf[i] != byte_at(at + i))
				fail_msg("byte %lu", (unsigned long)(at + i));
		at += n;
	} while (n == want);
	assert_int_equal(at, bytes);
	assert_int_equal(ctl_flow_take(p.flow, buf, 1), 0);
	pthread_join(t, NULL);
	assert_int_equal(p.ret, 0);
	ctl_flow_free(p.flow);
	free(buf);
}

static void pieces(void **state)
{
	static const uint32_t most[] = { 1, 7, 512, RING - 1, RING, 3 * RING + 1 };

	passes(0, 10, 10);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(most); i++)
		for (size_t k = 0; k < ZNS_ARRAY_SIZE(most); k++)
			passes(most[i] < 8 || most[k] < 8 ? 20000 : 500000, most[i], most[k]);
}

static void taker_leaves(void **state)
{
	struct putter p = { .flow = ctl_flow_new(RING), .bytes = 1 << 20, .seed = 7, .most = 1000 };
	uint8_t buf[100];
	pthread_t t;

	pthread_create(&t, NULL, put, &p);
	assert_int_equal(ctl_flow_take(p.flow, buf, sizeof(buf)), sizeof(buf));
	ctl_flow_leave(p.flow);
	pthread_join(t, NULL);
	assert_int_equal(p.ret, -EPIPE);
	ctl_flow_free(p.flow);
}

/* The same digest as for the whole input at once, with and without a thread. */
static void digests(void **state)
{
	static const size_t sizes[] = {
		0, 1, 1 << 20, (1 << 20) + 1, (9 << 20) - 1, (49 << 20) + 7
	};
	uint64_t seed = 3;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(sizes); i++) {
		uint8_t *buf = malloc(sizes[i] + 1), sum[EVP_MAX_MD_SIZE];
		char digest[CTL_OCI_DIGEST], want[2 * CTL_OCI_SHA_BYTES + 1];
		struct ctl_sha *s = ctl_sha_new();

		for (size_t k = 0; k < sizes[i]; k++)
			buf[k] = byte_at(k);
		for (size_t at = 0, n; at < sizes[i]; at += n) {
			n = 1 + roll(&seed) % (1 << 20);
			n = zns_min(n, sizes[i] - at);
			ctl_sha_add(s, buf + at, n);
		}
		ctl_sha_end(s, digest);
		assert_true(EVP_Digest(buf, sizes[i], sum, NULL, EVP_sha256(), NULL));
		ctl_oci_hex(sum, CTL_OCI_SHA_BYTES, want);
		assert_string_equal(ctl_oci_digits(digest), want);
		free(buf);
	}
}

#define SECOND 1000000000ULL

/* A peer that keeps the rate has no limit, one that stops has the limit, one that trickles a little
 * more. */
static void patience(void **state)
{
	static const uint64_t step[] = { 1000, 900000, SECOND, 7 * SECOND };
	struct ctl_patience p;
	uint64_t waited;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(step); i++) {
		ctl_patience_start(&p, 60);
		for (waited = 0; waited < 600 * SECOND && waited / step[i] < 100000;
		     waited += step[i]) {
			assert_true(ctl_patience_waited(&p, step[i]));
			ctl_patience_got(&p, step[i] * CTL_PATIENCE_RATE / SECOND + 1);
		}
		for (waited = 0; ctl_patience_waited(&p, step[3]); waited += step[3])
			assert_true(waited <= 60 * SECOND);
		assert_true(waited >= 49 * SECOND);
	}
	ctl_patience_start(&p, 60);
	for (waited = 0; ctl_patience_waited(&p, SECOND / 1000); waited += SECOND / 1000)
		ctl_patience_got(&p, 1);
	assert_true(waited < 65 * SECOND);
	ctl_patience_start(&p, 0);
	assert_true(ctl_patience_waited(&p, UINT64_MAX));
}

/* Time in which the command was stopped itself is not the peer's. */
static void stopped_itself(void **state)
{
	struct ctl_patience p;

	ctl_patience_start(&p, 10);
	for (int i = 0; i < 4; i++)
		assert_true(ctl_patience_ticked(&p, zns_mono_ns() - 1000 * SECOND));
	assert_false(ctl_patience_ticked(&p, zns_mono_ns() - 1000 * SECOND));
}

/* The caller has SIGALRM blocked. ctl_patience_start() must unblock it, since only that signal ends a
 * write that waits. */
static void signal_was_blocked(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_patience p;
	sigset_t alarm, now;
	int to[2];

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	assert_int_equal(sigprocmask(SIG_BLOCK, &alarm, NULL), 0);
	assert_int_equal(pipe(to), 0);
	ctl_patience_start(&p, 60);
	assert_int_equal(ctl_patience_write(&p, to[1], "x", 1, &err), 0);
	assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &now), 0);
	assert_false(sigismember(&now, SIGALRM));
	close(to[0]);
	close(to[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces),         cmocka_unit_test(taker_leaves),
		cmocka_unit_test(digests),        cmocka_unit_test(patience),
		cmocka_unit_test(stopped_itself), cmocka_unit_test(signal_was_blocked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
