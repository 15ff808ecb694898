/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The process that is dumped: private anonymous memory full of numbers that no compressor shrinks.
 *   subject MEBIBYTES SEED ANSWERS
 * It appends "ready DIGEST" to the file ANSWERS and then, at each SIGUSR1, looks at all of its
 * memory again and appends "same DIGEST" or "differs DIGEST". Every word depends on its place and
 * on the seed, so a page that is lost, of another run, or in another's place is found.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t word_at(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed << 40) + (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static void answer(const char *path, const char *word, uint64_t digest)
{
	char line[64];
	int len = snprintf(line, sizeof(line), "%s %016llx\n", word, (unsigned long long)digest);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

	if (fd < 0 || write(fd, line, len) != len)
		exit(1);
	close(fd);
}

int main(int argc, char **argv)
{
	uint64_t words, seed, digest;
	uint64_t *mem;
	sigset_t set;
	int sig;

	if (argc != 4)
		return 2;
	words = strtoull(argv[1], NULL, 10) << 17;
	seed = strtoull(argv[2], NULL, 10);
	mem = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return 1;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	digest = seed;
	for (uint64_t i = 0; i < words; i++) {
		mem[i] = word_at(seed, i);
		digest = (digest ^ mem[i]) * 0x100000001b3u;
	}
	answer(argv[3], "ready", digest);
	for (;;) {
		uint64_t wrong = 0;

		if (sigwait(&set, &sig))
			return 1;
		digest = seed;
		for (uint64_t i = 0; i < words; i++) {
			wrong += mem[i] != word_at(seed, i);
			digest = (digest ^ mem[i]) * 0x100000001b3u;
		}
		answer(argv[3], wrong ? "differs" : "same", digest);
	}
}
