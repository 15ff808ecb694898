/* SPDX-License-Identifier: GPL-2.0-only */
/* See oci.h: parses names of images. */
#include <stdlib.h>
#include <string.h>
#include "../ctl/lib/ctl.h"
#include "oci.h"

#define TAG_MAX 128

/* Is this a valid tag? (distribution-spec, "Pulling manifests") */
static bool is_tag(const char *tag)
{
	size_t n = strlen(tag);

	return n && n <= TAG_MAX && *tag != '.' && *tag != '-' &&
	       strspn(tag, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
		       n;
}

int ctl_oci_parse(const char *where, struct ctl_oci_ref *out, struct zns_err *err)
{
	const char *colon = strchr(where, ':');

	*out = (struct ctl_oci_ref){ .tag = colon ? colon + 1 : "latest" };
	/* skopeo splits at the first colon, so the directory's name must not contain one */
	if (!is_tag(out->tag) || colon == where)
		return zns_fail(
			err, -EINVAL,
			"%s is not DIR or DIR:TAG: a tag is letters, digits, _, . and -, a directory has no colon",
			where);
	out->dir = strndup(where, colon ? (size_t)(colon - where) : strlen(where));
	return out->dir ? 0 : zns_fail(err, -ENOMEM, "no memory for a name");
}

bool ctl_oci_digest(const char *digest)
{
	return digest && !strncmp(digest, "sha256:", 7) && strlen(digest) == CTL_OCI_DIGEST - 1 &&
	       strspn(digest + 7, "0123456789abcdef") == CTL_OCI_DIGEST - 8;
}

void ctl_oci_hex(const uint8_t *bytes, size_t len, char *text)
{
	for (size_t i = 0; i < len; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

bool ctl_oci_unhex(const char *text, uint8_t *bytes, size_t len)
{
	static const char digits[] = "0123456789abcdef";

	if (strlen(text) != 2 * len || strspn(text, digits) != 2 * len)
		return false;
	for (size_t i = 0; i < 2 * len; i++)
		bytes[i / 2] = (uint8_t)(bytes[i / 2] << 4 | (strchr(digits, text[i]) - digits));
	return true;
}
