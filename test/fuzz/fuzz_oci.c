/* SPDX-License-Identifier: GPL-2.0-only */
/* An OCI layout that a stranger made: the input as its index, and as the manifest of an index that
 * is right. */
#include <stdlib.h>
#include <string.h>
#include "../../zns/oci/oci.h"
#include "files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(void)
{
	struct ctl_oci_image i;

	if (!ctl_oci_read(files_dir, &i, NULL))
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

	if (!ready) {
		files_begin();
		files_mkdir("blobs");
		files_mkdir("blobs/sha256");
	}
	ready = true;
	files_put("index.json", data, size);
	look();
	ctl_sha_add(sha, data, size);
	ctl_sha_end(sha, digest);
	snprintf(name, sizeof(name), "blobs/sha256/%s", ctl_oci_digits(digest));
	files_put(name, data, size);
	snprintf(index, sizeof(index),
		 "{\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\","
		 "\"digest\":\"%s\",\"size\":%zu}]}",
		 digest, size);
	files_put("index.json", index, strlen(index));
	look();
	snprintf(index, sizeof(index), "%s/%s", files_dir, name);
	unlink(index);
	return 0;
}
