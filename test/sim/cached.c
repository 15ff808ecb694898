/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A server of objects that are all in memory, as HTTP caches keep them. cached COUNT KIB: a line
 * "N" on standard input is answered by the object's bytes, all of them, on standard output.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	size_t count = argc > 2 ? strtoul(argv[1], NULL, 10) : 0, n;
	size_t len = argc > 2 ? strtoul(argv[2], NULL, 10) << 10 : 0;
	char **object = calloc(count, sizeof(*object)), line[32];

	if (!count || !len || !object)
		return 2;
	for (n = 0; n < count; n++) {
		object[n] = malloc(len);
		if (!object[n])
			return 1;
		memset(object[n], (int)n, len);
	}
	while (fgets(line, sizeof(line), stdin)) {
		n = strtoul(line, NULL, 10) % count;
		if (fwrite(object[n], 1, len, stdout) != len || fflush(stdout))
			return 1;
	}
	return 0;
}
