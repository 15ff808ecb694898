/* SPDX-License-Identifier: GPL-2.0-only */
/* An OCI layout that a stranger made: the input as its index, and as the manifest of an index that is
 * right. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../zns/ctl/oci.h"
#include "zns/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/dev/shm/fuzz-oci-XXXXXX";

static void end(void)
{
	char cmd[96];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	if (system(cmd))
		return;
}

static void put(const char *name, const void *data, size_t size)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || zns_write_all(fd, data, size))
		abort();
	close(fd);
}

static void make_dirs(void)
{
	char path[128];

	if (!mkdtemp(dir))
		abort();
	atexit(end);
	snprintf(path, sizeof(path), "%s/blobs", dir);
	if (mkdir(path, 0700))
		abort();
	strcat(path, "/sha256");
	if (mkdir(path, 0700))
		abort();
}

static void look(void)
{
	struct ctl_oci_image i;

	if (!ctl_oci_read(dir, &i, NULL))
		for (size_t k = 0; k < i.nr; k++)
			if (!ctl_oci_digest(i.layers[k].digest) ||
			    strlen(i.layers[k].id) >= sizeof(i.layers[k].id) ||
			    strlen(i.name) >= sizeof(i.name))
				abort();
	ctl_oci_image_close(&i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char digest[CTL_OCI_DIGEST], name[128], index[512];
	struct ctl_sha *sha = ctl_sha_new();
	static bool ready;

	if (!ready)
		make_dirs();
	ready = true;
	put("index.json", data, size);
	look();
	ctl_sha_add(sha, data, size);
	ctl_sha_end(sha, digest);
	snprintf(name, sizeof(name), "blobs/sha256/%s", ctl_oci_digits(digest));
	put(name, data, size);
	snprintf(index, sizeof(index),
		 "{\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\","
		 "\"digest\":\"%s\",\"size\":%zu}]}",
		 digest, size);
	put("index.json", index, strlen(index));
	look();
	snprintf(index, sizeof(index), "%s/%s", dir, name);
	unlink(index);
	return 0;
}
