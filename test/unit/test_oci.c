/* SPDX-License-Identifier: GPL-2.0-only */
/* Layers of OCI images on their way: skopeo's image proxy, whose answers the test writes, and the
 * files that a push serves, without a mount. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define start start_skopeo
#include "../../zns/oci/proxy.c"
#undef start
#include "../../zns/oci/export_serve.c"
#include "pair.h"

/* ---- skopeo ---- */

static struct ctl_proxy proxy;
static struct ctl_patience patience;
static int fds_before;

static int begin_proxy(void **state)
{
	fds_before = count_fds();
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk), 0);
	ctl_patience_start(&patience, 0);
	proxy = (struct ctl_proxy){ .sock = sk[0],
				    .patience = &patience,
				    .said = memfd_create("skopeo", MFD_CLOEXEC),
				    .image = 5 };
	return 0;
}

/* No descriptor is left over. */
static int end_proxy(void **state)
{
	close(proxy.said);
	close(sk[0]);
	if (sk[1] >= 0)
		close(sk[1]);
	assert_int_equal(count_fds(), fds_before);
	return 0;
}

static int file_of(const char *text, size_t len)
{
	int fd = memfd_create("data", MFD_CLOEXEC);

	assert_int_equal(write(fd, text, len), len);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

/* The next answer, with a descriptor that is closed here; -1: without. */
static void answer(const char *text, int fd)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} u = { .h = { .cmsg_len = CMSG_LEN(sizeof(int)),
		       .cmsg_level = SOL_SOCKET,
		       .cmsg_type = SCM_RIGHTS } };
	struct iovec v = { (char *)text, strlen(text) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (fd >= 0) {
		memcpy(CMSG_DATA(&u.h), &fd, sizeof(fd));
		m.msg_control = &u;
		m.msg_controllen = sizeof(u.room);
	}
	assert_int_equal(sendmsg(sk[1], &m, 0), v.iov_len);
	if (fd >= 0)
		close(fd);
}

static void asked(const char *text)
{
	char got[400];
	ssize_t n = recv(sk[1], got, sizeof(got) - 1, MSG_DONTWAIT);

	assert_true(n > 0);
	got[n] = '\0';
	assert_string_equal(got, text);
}

static void asked_no_more(void)
{
	assert_int_equal(recv(sk[1], &(char){ 0 }, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

static const struct ctl_oci_layer layer = { .digest = "sha256:ab", .size = 1234 };
#define GET_BLOB "{\"method\":\"GetBlob\",\"args\":[5,\"sha256:ab\",1234]}"
#define NO_PIPE "skopeo's answer came without the pipe for its data"

static void layers(void **state)
{
	struct ctl_oci_source source = ctl_proxy_source(&proxy);
	struct zns_err err = ZNS_ERR_INIT;
	char got[8];
	int fd;

	answer("{\"success\":true,\"value\":1234,\"pipeid\":7}", file_of("layer", 5));
	fd = source.open(source.arg, &layer, &err);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, got, sizeof(got)), 5);
	assert_memory_equal(got, "layer", 5);
	close(fd);
	asked(GET_BLOB);
	asked("{\"method\":\"FinishPipe\",\"args\":[7]}");
	answer("{\"success\":true}", -1);
	assert_int_equal(source.end(source.arg, &err), 0);
	answer("{\"success\":false,\"error\":\"wrong digest\"}", file_of("", 0));
	assert_int_equal(source.end(source.arg, &err), -EIO);
	assert_string_equal(err.msg, "skopeo failed: wrong digest");
	asked_no_more();
}

static void no_layer(const char *text, bool pipe, int code, const char *words)
{
	struct zns_err err = ZNS_ERR_INIT;

	answer(text, pipe ? file_of("layer", 5) : -1);
	assert_int_equal(open_layer(&proxy, &layer, &err), code);
	if (words)
		assert_string_equal(err.msg, words);
	asked(GET_BLOB);
	asked_no_more();
}

static void bad_answers(void **state)
{
	no_layer("{\"success\":true,\"pipeid\":7}", false, -EBADMSG, NO_PIPE);
	no_layer("{\"success\":false,\"error\":\"not \\u001b[1mfound\"}", true, -EIO,
		 "skopeo failed: not \\x1b[1mfound");
	no_layer("{\"success\":false}", true, -EIO, "skopeo failed: it does not say why");
	no_layer("{}", true, -EIO, "skopeo failed: it does not say why");
	no_layer("[]", true, -EIO, "skopeo failed: it does not say why");
	no_layer("{\"success\":tr", true, -EBADMSG, NULL);
}

/* What it printed last says why. */
static void it_has_ended(void **state)
{
	static const char said[] =
		"time=\"2026\" level=info msg=\"trying\"\ntime=\"2026\" level=fatal msg=\"no such tag\"\n";
	struct zns_err err = ZNS_ERR_INIT;

	close(sk[1]);
	sk[1] = -1;
	assert_int_equal(open_layer(&proxy, &layer, &err), -EIO);
	assert_string_equal(err.msg, "skopeo failed: it has ended");
	assert_int_equal(write(proxy.said, said, sizeof(said) - 1), sizeof(said) - 1);
	assert_int_equal(end_layer(&proxy, &err), -EIO);
	assert_string_equal(err.msg, "skopeo failed: no such tag");
}

static void other_versions(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;

	answer("{\"success\":true,\"value\":\"0.2.8\"}", -1);
	assert_int_equal(hello(&proxy, &err), 0);
	asked("{\"method\":\"Initialize\",\"args\":[]}");
	answer("{\"success\":true,\"value\":\"0.20.1\"}", file_of("", 0));
	assert_int_equal(hello(&proxy, &err), -ENOTSUP);
	answer("{\"success\":true}", -1);
	assert_int_equal(hello(&proxy, &err), -ENOTSUP);
	answer("{\"success\":false,\"error\":\"?\"}", -1);
	assert_int_equal(hello(&proxy, &err), -ENOTSUP);
	assert_non_null(strstr(err.msg, "another version?"));
}

/* A manifest of one layer, with blanks behind it up to @len bytes. */
static int manifest(size_t len)
{
	static const char text[] =
		"{\"schemaVersion\":2,\"layers\":[{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\","
		"\"size\":7,\"digest\":\"sha256:"
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}]}";
	char *all = malloc(len);
	int fd;

	memset(all, ' ', len);
	memcpy(all, text, sizeof(text) - 1);
	fd = file_of(all, len);
	free(all);
	return fd;
}

static int take_image(int fd, struct ctl_oci_image *out, struct zns_err *err)
{
	answer("{\"success\":true,\"value\":\"sha256:00\",\"pipeid\":9}", fd);
	answer("{\"success\":true}", -1);
	return ctl_proxy_image(&proxy, out, err);
}

static void images(void **state)
{
	struct ctl_oci_image image = CTL_OCI_IMAGE_INIT;
	struct zns_err err = ZNS_ERR_INIT;

	if (take_image(manifest(MANIFEST_MAX), &image, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(image.nr, 1);
	assert_int_equal(image.layers[0].size, 7);
	ctl_oci_image_close(&image);
	asked("{\"method\":\"GetManifest\",\"args\":[5]}");
	asked("{\"method\":\"FinishPipe\",\"args\":[9]}");
	asked_no_more();
	assert_int_equal(take_image(manifest(MANIFEST_MAX + 1), &image, &err), -EFBIG);
	assert_string_equal(err.msg, "the manifest has more than 4 MiB");
}

static void no_image(void **state)
{
	struct ctl_oci_image image = CTL_OCI_IMAGE_INIT;
	struct zns_err err = ZNS_ERR_INIT;

	assert_int_equal(take_image(-1, &image, &err), -EBADMSG);
	assert_string_equal(err.msg, NO_PIPE);
	assert_int_equal(recv(sk[0], &(char){ 0 }, 1, MSG_DONTWAIT), 1); /* the second answer */
	answer("{\"success\":true,\"pipeid\":9}", manifest(1000));
	answer("{\"success\":false,\"error\":\"cut off\"}", -1);
	assert_int_equal(ctl_proxy_image(&proxy, &image, &err), -EIO);
	assert_string_equal(err.msg, "skopeo failed: cut off");
}

/* ---- files that are made while they are read ---- */

#define LAYERS 3
#define LEN 300000U

static struct export_oci exported;
static struct export_layer exported_layer[LAYERS];
static struct export_serve *serve;
static struct fuse_context context;
static _Atomic unsigned int made; /* how often a layer was made */
static unsigned int short_by; /* bytes that a layer lacks */
static int make_code;

struct fuse_context *__wrap_fuse_get_context(void);
struct fuse_context *__wrap_fuse_get_context(void)
{
	return &context;
}

static uint8_t byte_at(uint32_t level, uint64_t i)
{
	return (uint8_t)((i + level * 1000003) * 2654435761U >> 13);
}

int __wrap_export_layer(struct export *x, int fd, uint32_t level, bool link,
			int (*tee)(void *arg, const void *buf, size_t len), void *arg, uint8_t *buf,
			struct zns_err *err);
int __wrap_export_layer(struct export *x, int fd, uint32_t level, bool link,
			int (*tee)(void *arg, const void *buf, size_t len), void *arg, uint8_t *buf,
			struct zns_err *err)
{
	int ret = 0;

	made++;
	for (uint64_t i = 0; i < LEN - short_by && !ret; i += 1000) {
		size_t n = zns_min(1000, LEN - short_by - i);

		for (size_t k = 0; k < n; k++)
			buf[k] = byte_at(level, i + k);
		ret = tee(arg, buf, n);
	}
	return ret ? ret : make_code ? zns_fail(err, make_code, "the test says so") : 0;
}

static int begin_files(void **state)
{
	exported = (struct export_oci){ .layers = exported_layer, .nr_layers = LAYERS };
	for (uint32_t i = 0; i < LAYERS; i++) {
		exported_layer[i] = (struct export_layer){ .size = LEN, .level = i };
		snprintf(exported_layer[i].digest, CTL_OCI_DIGEST, "sha256:%u%u%u", i, i, i);
	}
	serve = calloc(1, sizeof(*serve));
	serve->x = &exported;
	pthread_mutex_init(&serve->lock, NULL);
	context.private_data = serve;
	made = short_by = 0;
	make_code = 0;
	return 0;
}

static struct fuse_file_info opened(const char *path)
{
	struct fuse_file_info fi = { .flags = O_RDONLY };

	assert_int_equal(operations.open(path, &fi), 0);
	assert_true(fi.direct_io);
	return fi;
}

static void reads(struct fuse_file_info *fi, uint32_t level, off_t off, size_t len, size_t want)
{
	char *buf = malloc(len);

	assert_int_equal(operations.read(NULL, buf, len, off, fi), want);
	for (size_t i = 0; i < want; i++)
		if ((uint8_t)buf[i] != byte_at(level, (uint64_t)off + i))
			fail_msg("byte %lu", (unsigned long)off + i);
	free(buf);
}

static void names_of_files(void **state)
{
	static const char *const none[] = {
		"000", "/00", "/0000", "/333", "//", "/sha256:000", ""
	};
	struct fuse_file_info fi = { .flags = O_RDWR };
	struct zns_err err = ZNS_ERR_INIT;
	struct stat st;

	assert_int_equal(operations.getattr("/", &st, NULL), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0500);
	assert_int_equal(operations.open("/000", &fi), -EROFS);
	fi.flags = O_WRONLY;
	assert_int_equal(operations.open("/000", &fi), -EROFS);
	fi.flags = O_RDONLY;
	assert_int_equal(operations.open("/", &fi), -ENOENT);
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
		assert_int_equal(operations.getattr(none[i], &st, NULL), -ENOENT);
		assert_int_equal(operations.open(none[i], &fi), -ENOENT);
	}
	assert_null(serve->streams);
	for (uint32_t i = 0; i < LAYERS; i++) {
		char path[8];

		snprintf(path, sizeof(path), "/%u%u%u", i, i, i);
		assert_int_equal(operations.getattr(path, &st, NULL), 0);
		assert_int_equal(st.st_mode, S_IFREG | 0400);
		assert_int_equal(st.st_size, LEN);
		fi = opened(path);
		reads(&fi, i, 0, 100, 100);
		assert_int_equal(operations.release(path, &fi), 0);
	}
	assert_int_equal(export_serve_end(serve, &err), 0);
}

static void front_to_back(void **state)
{
	struct fuse_file_info fi = opened("/111"), other = opened("/222");
	struct zns_err err = ZNS_ERR_INIT;
	char c;

	reads(&fi, 1, 0, 1000, 1000);
	reads(&fi, 1, 1000, 1, 1);
	reads(&other, 2, 0, 10, 10);
	reads(&fi, 1, 200000, 1000, 1000); /* what lies between is skipped */
	assert_int_equal(made, 2);
	reads(&fi, 1, 200999, 1000, 1000); /* a byte back: it is made again */
	assert_int_equal(made, 3);
	reads(&fi, 1, LEN - 10, 100, 10); /* up to its end */
	reads(&fi, 1, LEN, 100, 0);
	assert_int_equal(operations.read(NULL, &c, 1, -1, &fi), -EINVAL);
	reads(&other, 2, 10, LEN, LEN - 10);
	assert_int_equal(made, 3);
	assert_int_equal(operations.release(NULL, &fi), 0); /* not the first of the list */
	reads(&other, 2, 0, 10, 10);
	assert_int_equal(operations.release(NULL, &other), 0);
	assert_null(serve->streams);
	assert_int_equal(export_serve_end(serve, &err), 0);
}

/* A layer that ends too early is an error of the reader, and its reason one of the push. */
static void too_short(void **state)
{
	struct fuse_file_info fi = opened("/000"), other;
	struct zns_err err = ZNS_ERR_INIT;
	char *buf = malloc(LEN);

	short_by = 1;
	make_code = -EBADMSG;
	reads(&fi, 0, 0, 1000, 1000);
	assert_int_equal(operations.read(NULL, buf, LEN, 1000, &fi), -EIO);
	other = opened("/111");
	assert_int_equal(operations.read(NULL, buf, LEN, 0, &other), -EIO);
	free(buf);
	assert_int_equal(export_serve_end(serve, &err), -EBADMSG); /* with two files open */
	assert_string_equal(err.msg, "the test says so");
}

/* Who closes a file early has met no error. */
static void closed_early(void **state)
{
	struct fuse_file_info fi = opened("/000");
	struct zns_err err = ZNS_ERR_INIT;

	reads(&fi, 0, 0, 10, 10);
	assert_int_equal(operations.release(NULL, &fi), 0);
	assert_int_equal(export_serve_end(serve, &err), 0);
	assert_int_equal(export_serve_end(NULL, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(layers, begin_proxy, end_proxy),
		cmocka_unit_test_setup_teardown(bad_answers, begin_proxy, end_proxy),
		cmocka_unit_test_setup_teardown(it_has_ended, begin_proxy, end_proxy),
		cmocka_unit_test_setup_teardown(other_versions, begin_proxy, end_proxy),
		cmocka_unit_test_setup_teardown(images, begin_proxy, end_proxy),
		cmocka_unit_test_setup_teardown(no_image, begin_proxy, end_proxy),
		cmocka_unit_test_setup(names_of_files, begin_files),
		cmocka_unit_test_setup(front_to_back, begin_files),
		cmocka_unit_test_setup(too_short, begin_files),
		cmocka_unit_test_setup(closed_early, begin_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
