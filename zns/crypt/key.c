/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads master keys from a file or from the kernel's keyring, checks them, and derives the keys
 * that are used. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include "crypt_priv.h"

/* length of a key in hexadecimal digits with its newline */
#define TEXT_BYTES (2 * ZNS_KEY_BYTES + 1)

static int digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int master_decode(const uint8_t *buf, size_t len, uint8_t raw[ZNS_KEY_BYTES])
{
	if (len == ZNS_KEY_BYTES) {
		memcpy(raw, buf, ZNS_KEY_BYTES);
		return 0;
	}
	if (len != 2 * ZNS_KEY_BYTES && !(len == TEXT_BYTES && buf[len - 1] == '\n'))
		return -EINVAL;
	for (int i = 0; i < ZNS_KEY_BYTES; i++) {
		int hi = digit(buf[2 * i]), lo = digit(buf[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		raw[i] = (uint8_t)(hi << 4 | lo);
	}
	return 0;
}

/* Derives a key from the master key's bytes: each purpose has a label and so a key of its own. */
static int derive(const uint8_t raw[ZNS_KEY_BYTES], const char *label, uint8_t *out, size_t len)
{
	uint8_t sum[EVP_MAX_MD_SIZE];
	unsigned int n = 0;
	bool ok = HMAC(EVP_sha256(), raw, ZNS_KEY_BYTES, (const uint8_t *)label, strlen(label), sum,
		       &n) &&
		  n >= len;

	if (ok)
		memcpy(out, sum, len);
	explicit_bzero(sum, sizeof(sum));
	return ok ? 0 : -EIO;
}

int master_from_bytes(const uint8_t raw[ZNS_KEY_BYTES], struct zns_master **out,
		      struct zns_err *err)
{
	struct zns_master *m = secret_alloc(sizeof(*m), err);

	if (!m)
		return err && err->code ? err->code : -ENOMEM;
	if (derive(raw, "zns-criu 1 id", m->id, sizeof(m->id)) ||
	    derive(raw, "zns-criu 1 wrap", m->wrap, sizeof(m->wrap))) {
		zns_master_free(m);
		return zns_fail(err, -EIO, "libcrypto has no HMAC-SHA-256");
	}
	*out = m;
	return 0;
}

void zns_master_free(struct zns_master *m)
{
	secret_free(m, sizeof(*m));
}

const uint8_t *zns_master_id(const struct zns_master *m)
{
	return m->id;
}

static int check_file(int fd, const char *path, struct zns_err *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return zns_fail_sys(err, -errno, "cannot read the attributes of key file %s", path);
	if (!S_ISREG(st.st_mode))
		return zns_fail(err, -EPERM, "key file %s is no regular file", path);
	if (st.st_uid && st.st_uid != geteuid())
		return zns_fail(err, -EPERM,
				"key file %s belongs to user %u: it must be root's (chown root)",
				path, (unsigned)st.st_uid);
	if (st.st_mode & 077)
		return zns_fail(err, -EPERM,
				"key file %s has mode %04o: others could read it (chmod 600)", path,
				(unsigned)(st.st_mode & 07777));
	return 0;
}

static int read_file_key(const char *path, uint8_t *buf, size_t max, size_t *len,
			 struct zns_err *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n;
	int ret;

	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open key file %s", path);
	ret = check_file(fd, path, err);
	if (ret)
		return ret;
	for (*len = 0; *len < max; *len += (size_t)n) {
		n = read(fd, buf + *len, max - *len);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0)
			return zns_fail_sys(err, -errno, "cannot read key file %s", path);
		else if (!n)
			break;
	}
	return 0;
}

int zns_key_spec_check(const char *spec, char *out, size_t len, struct zns_err *err)
{
	char cwd[PATH_MAX] = "";
	const char *path = spec + 5;
	int n;

	if (!strncmp(spec, "keyring:", 8) && spec[8]) {
		n = snprintf(out, len, "%s", spec);
	} else if (!strncmp(spec, "file:", 5) && spec[5]) {
		if (*path != '/' && !getcwd(cwd, sizeof(cwd)))
			return zns_fail_sys(err, -errno, "cannot find the current directory");
		n = snprintf(out, len, "file:%s%s%s", *path != '/' ? cwd : "",
			     *path != '/' ? "/" : "", path);
	} else {
		return zns_fail(err, -EINVAL,
				"\"%.100s\" names no key: write file:PATH or keyring:DESCRIPTION",
				spec);
	}
	return n < 0 || (size_t)n >= len ?
		       zns_fail(
			       err, -ENAMETOOLONG,
			       "the name of the key is too long: use a shorter path or description") :
		       0;
}

int zns_master_load(const char *spec, struct zns_master **out, struct zns_err *err)
{
	uint8_t buf[TEXT_BYTES + 1], raw[ZNS_KEY_BYTES];
	bool file = !strncmp(spec, "file:", 5);
	const char *name = strchr(spec, ':');
	char checked[PATH_MAX + 16];
	size_t len = 0;
	int ret;

	*out = NULL;
	ret = zns_key_spec_check(spec, checked, sizeof(checked), err);
	if (ret)
		return ret;
	name++;
	ret = file ? read_file_key(name, buf, sizeof(buf), &len, err) :
		     keyring_read(name, buf, sizeof(buf), &len, err);
	if (!ret && master_decode(buf, len, raw))
		ret = zns_fail(
			err, -EINVAL,
			"%s is no key: 32 random bytes are, or 64 hexadecimal digits; `znsctl key create FILE` "
			"makes one",
			spec);
	if (!ret)
		ret = master_from_bytes(raw, out, err);
	explicit_bzero(buf, sizeof(buf));
	explicit_bzero(raw, sizeof(raw));
	return ret;
}

int zns_master_create(const char *path, struct zns_err *err)
{
	char text[TEXT_BYTES + 1];
	uint8_t raw[ZNS_KEY_BYTES];
	cleanup_close int fd = -1;
	int ret;

	if (RAND_priv_bytes(raw, sizeof(raw)) != 1)
		return zns_fail(err, -EIO, "libcrypto gives no random bytes for a key");
	for (int i = 0; i < ZNS_KEY_BYTES; i++)
		sprintf(text + 2 * i, "%02x", raw[i]);
	text[TEXT_BYTES - 1] = '\n';
	explicit_bzero(raw, sizeof(raw));
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		ret = zns_fail_sys(err, -errno, "cannot make key file %s", path);
	} else {
		ret = zns_write_all(fd, text, TEXT_BYTES);
		if (!ret && fsync(fd))
			ret = -errno;
		if (!ret)
			ret = zns_sync_parent(path);
		if (ret) {
			zns_fail_sys(err, ret, "cannot write key file %s", path);
			unlink(path);
		}
	}
	explicit_bzero(text, sizeof(text));
	return ret;
}
