/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A fuzz target without the fuzzer: runs it on files and on all files of directories, so that the
 * corpus in the repository is a unit test with any compiler. What a target refuses it ends by
 * abort(). replay FILE|DIRECTORY...     the last line sums up
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned done;

static void one(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data, *exact;
	size_t n = 0, got, cap = 1 << 20;

	data = malloc(cap);
	if (!f || !data) {
		fprintf(stderr, "replay: %s cannot be read\n", path);
		exit(1);
	}
	while ((got = fread(data + n, 1, cap - n, f)) > 0)
		n += got;
	fclose(f);
	/* As long as the input is, so that a sanitizer sees what reads beyond it. */
	exact = malloc(n ? n : 1);
	if (!exact)
		exit(1);
	memcpy(exact, data, n);
	free(data);
	LLVMFuzzerTestOneInput(exact, n);
	free(exact);
	done++;
}

static void all(const char *path)
{
	struct dirent *e;
	struct stat st;
	char file[4096];
	DIR *d;

	if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
		one(path);
		return;
	}
	d = opendir(path);
	while (d && (e = readdir(d))) {
		if (*e->d_name == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		all(file);
	}
	if (d)
		closedir(d);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		all(argv[i]);
	printf("%s: %u inputs\n", argv[0], done);
	return done ? 0 : 1;
}
