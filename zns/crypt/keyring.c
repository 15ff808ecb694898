/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads a master key from the kernel's keyring, with three system calls instead of libkeyutils. */
#include <linux/keyctl.h>
#include <sys/syscall.h>
#include "crypt_priv.h"

static long find(const char *desc)
{
	long key = syscall(SYS_request_key, "user", desc, NULL, 0);

	if (key >= 0)
		return key;
	/*
	 * An administrator's keyctl puts the key into the user keyring, which the session keyring
	 * of a daemon often lacks. Linked into our process keyring, it is found.
	 */
	if (syscall(SYS_keyctl, KEYCTL_LINK, KEY_SPEC_USER_KEYRING, KEY_SPEC_PROCESS_KEYRING, 0, 0))
		return -errno;
	key = syscall(SYS_request_key, "user", desc, NULL, 0);
	return key < 0 ? -errno : key;
}

int keyring_read(const char *desc, uint8_t *buf, size_t max, size_t *len, struct zns_err *err)
{
	long key = find(desc), n;

	if (key == -ENOKEY)
		return zns_fail(
			err, -ENOKEY,
			"no key \"%s\" of type user in the keyrings of this process or of its user: "
			"keyctl padd user NAME @u",
			desc);
	if (key < 0)
		return zns_fail_sys(err, (int)key, "cannot find key \"%s\" in the kernel's keyring",
				    desc);
	n = syscall(SYS_keyctl, KEYCTL_READ, key, buf, max, 0);
	if (n < 0)
		return zns_fail_sys(err, -errno, "cannot read key \"%s\" in the kernel's keyring",
				    desc);
	/* the payload is longer than @max: the caller sees that it is not the length of a key */
	*len = (size_t)n;
	return 0;
}
