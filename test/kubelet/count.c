/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A container whose state is in its memory alone. It says who it is (a random number), a digest of
 * its memory, and how often it has said so.
 */
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

static uint64_t memory[BYTES / sizeof(uint64_t)];

static int fill(void)
{
	for (size_t at = 0; at < sizeof(memory);) {
		ssize_t n = getrandom((char *)memory + at, sizeof(memory) - at, 0);

		if (n < 0)
			return -1;
		at += (size_t)n;
	}
	return 0;
}

int main(void)
{
	if (fill())
		return 1;
	for (unsigned long said = 0;; said++) {
		uint64_t digest = 0xcbf29ce484222325;

		for (size_t i = 0; i < sizeof(memory) / sizeof(*memory); i++)
			digest = (digest ^ memory[i]) * 0x100000001b3;
		printf("%016llx %016llx %lu\n", (unsigned long long)memory[0],
		       (unsigned long long)digest, said);
		fflush(stdout);
		usleep(300000);
	}
}
