/* SPDX-License-Identifier: GPL-2.0-only */
/* Podman: what it will do with a checkpoint (by its command line), and where its containers are. */
#include <string.h>
#include "docker.h"

/*
 * Is @word an option of `podman container checkpoint` that packs the directory into a file or
 * image? A handle in it would be useless on another machine.
 */
static bool packs(const char *word)
{
	static const char *const lengthy[] = { "--export", "--create-image" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(lengthy); i++) {
		size_t n = strlen(lengthy[i]);

		if (!strncmp(word, lengthy[i], n) && (!word[n] || word[n] == '='))
			return true;
	}
	if (word[0] != '-' || word[1] == '-')
		return false;
	/*
	 * finds -e in "-e FILE", "-eFILE", "-kRe FILE"; what follows -c in a word is the value of
	 * -c
	 */
	for (word++; *word && *word != 'c' && *word != '='; word++)
		if (*word == 'e')
			return true;
	return false;
}

enum podman_call podman_call_of(const char *args, size_t len)
{
	enum podman_call call = PODMAN_OTHER;

	for (const char *p = args; p < args + len; p += strlen(p) + 1) {
		if (call == PODMAN_OTHER) {
			if (!strcmp(p, "checkpoint"))
				call = PODMAN_KEPT;
			continue;
		}
		if (!strcmp(p, "--"))
			break;
		if (packs(p))
			return PODMAN_EXPORTED;
	}
	return call;
}

size_t podman_tail(const char *bundle, const char *id)
{
	static const char suffix[] = "-containers";
	size_t n = strlen(bundle), tail;
	char end[256];

	tail = (size_t)snprintf(end, sizeof(end), "/%s/userdata", id);
	if (tail >= sizeof(end) || *bundle != '/' || n <= tail || strcmp(bundle + n - tail, end))
		return 0;
	n -= tail;
	return n > strlen(suffix) && !strncmp(bundle + n - strlen(suffix), suffix, strlen(suffix)) ?
		       tail :
		       0;
}

int podman_root(const char *bundle, const char *id, const char *image_path, char *out, size_t len)
{
	size_t n = strlen(bundle), tail = podman_tail(bundle, id);

	if (!tail || n - tail >= len || !image_path || strncmp(image_path, bundle, n) ||
	    image_path[n] != '/' || !image_path[n + 1] || strchr(image_path + n + 1, '/'))
		return -ENOENT;
	snprintf(out, len, "%.*s", (int)(n - tail), bundle);
	return 0;
}
