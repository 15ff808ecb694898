/* SPDX-License-Identifier: GPL-2.0-only */
/* How the helper takes a dump's images: which requests it refuses, what it says, and what reaches
 * the writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "../../zns/helper/dump/images.c"

#define IMAGES 4U

/* ---- a writer that remembers what it was given ---- */

struct written {
	char name[ZW_NAME];
	bool is_pages, beside, settled, sealed;
	uint64_t bytes, of_tasks;
	uint32_t areas;
};

static struct dump dump;
static struct helper helper;
static struct written written[IMAGES];
static uint32_t nr_written;
static uint32_t unsteady, charged, uncharged; /* calls */
static int writer_code; /* what the next new image fails with */
static struct zns_err failed; /* the first error of the dump */

static struct written *of(struct zns_wimage *i)
{
	return (struct written *)i;
}

int __wrap_zns_writer_image(struct zns_writer *w, const char *name, bool pages,
			    struct zns_wimage **out, struct zns_err *err);
int __wrap_zns_writer_image(struct zns_writer *w, const char *name, bool pages,
			    struct zns_wimage **out, struct zns_err *err)
{
	struct written *n = &written[nr_written];

	if (writer_code)
		return zns_fail(err, writer_code, "the test says so");
	assert_true(nr_written++ < IMAGES);
	snprintf(n->name, sizeof(n->name), "%s", name);
	n->is_pages = pages;
	*out = (struct zns_wimage *)n;
	return 0;
}

int __wrap_zns_wimage_from_fd(struct zns_wimage *i, int fd, struct zns_err *err);
int __wrap_zns_wimage_from_fd(struct zns_wimage *i, int fd, struct zns_err *err)
{
	char c;

	while (read(fd, &c, 1) == 1)
		if (c == '!')
			return zns_fail(err, -EIO, "image %s cannot be read", of(i)->name);
		else
			of(i)->bytes++;
	return 0;
}

int __wrap_zns_wimage_data(struct zns_wimage *i, const void *buf, size_t len, struct zns_err *err);
int __wrap_zns_wimage_data(struct zns_wimage *i, const void *buf, size_t len, struct zns_err *err)
{
	of(i)->bytes += len;
	return 0;
}

int __wrap_zns_wimage_mem(struct zns_wimage *i, pid_t pid, const struct iovec *iov, uint32_t nr,
			  struct zns_err *err);
int __wrap_zns_wimage_mem(struct zns_wimage *i, pid_t pid, const struct iovec *iov, uint32_t nr,
			  struct zns_err *err)
{
	for (uint32_t n = 0; n < nr; n++)
		of(i)->of_tasks += iov[n].iov_len;
	of(i)->areas += nr;
	return 0;
}

int __wrap_zns_wimage_settle(struct zns_wimage *i, struct zns_err *err);
int __wrap_zns_wimage_settle(struct zns_wimage *i, struct zns_err *err)
{
	assert_false(of(i)->sealed);
	of(i)->settled = true;
	return 0;
}

int __wrap_zns_wimage_seal(struct zns_wimage *i, struct zns_err *err);
int __wrap_zns_wimage_seal(struct zns_wimage *i, struct zns_err *err)
{
	assert_false(of(i)->sealed);
	of(i)->sealed = true;
	return 0;
}

void __wrap_zns_wimage_set_beside(struct zns_wimage *i);
void __wrap_zns_wimage_set_beside(struct zns_wimage *i)
{
	of(i)->beside = true;
}

int __wrap_zns_writer_unsteady(struct zns_writer *w, pid_t pid, const struct iovec *iov,
			       uint32_t nr);
int __wrap_zns_writer_unsteady(struct zns_writer *w, pid_t pid, const struct iovec *iov,
			       uint32_t nr)
{
	unsteady++;
	return -ENOMEM; /* the dump goes on without the list */
}

int __wrap_live_fill_pagemap(struct dump *d, const char *name, int fd, struct zns_err *err);
int __wrap_live_fill_pagemap(struct dump *d, const char *name, int fd, struct zns_err *err)
{
	return 0;
}

int __wrap_charge_container(struct helper *h, struct zns_err *err);
int __wrap_charge_container(struct helper *h, struct zns_err *err)
{
	charged++;
	return 0;
}

void __wrap_charge_end(struct helper *h);
void __wrap_charge_end(struct helper *h)
{
	uncharged++;
}

void __wrap_dump_fail(struct dump *d, const struct zns_err *err);
void __wrap_dump_fail(struct dump *d, const struct zns_err *err)
{
	assert_ptr_equal(d, &dump);
	if (!failed.code)
		failed = *err;
}

int __wrap_dump_check(struct dump *d, struct zns_err *err);
int __wrap_dump_check(struct dump *d, struct zns_err *err)
{
	if (failed.code)
		*err = failed;
	return failed.code;
}

/* ---- criu ---- */

static void anew(void)
{
	while (dump.streams) {
		struct stream *s = dump.streams;

		dump.streams = s->next;
		pthread_join(s->thread, NULL);
		free(s);
	}
	while (dump.copies) {
		struct copy *c = dump.copies;

		dump.copies = c->next;
		free(c->data);
		free(c);
	}
	while (dump.taken) {
		struct taken *t = dump.taken;

		dump.taken = t->next;
		free(t);
	}
	free(dump.pages);
	dump = (struct dump){ .h = &helper, .copies_tail = &dump.copies };
	helper = (struct helper){ .sk = -1, .criu = -1, .dir = -1, .dump = &dump };
	memset(written, 0, sizeof(written));
	nr_written = unsteady = charged = uncharged = 0;
	writer_code = 0;
	failed = (struct zns_err)ZNS_ERR_INIT;
}

static int reset(void **state)
{
	anew();
	return 0;
}

static struct packet request(uint32_t op, const char *name)
{
	struct packet p = { .h = { .op = op, .pid = 1 } };

	if (name)
		p.len = (size_t)snprintf((char *)p.payload, ZW_STR, "%s", name) + 1;
	return p;
}

/* @nr areas, of 1, 2, 3 … bytes. */
static struct packet areas(uint32_t op, uint32_t nr)
{
	struct packet p = request(op, NULL);
	struct zw_iov *v = (struct zw_iov *)p.payload;

	for (uint32_t i = 0; i < nr; i++)
		v[i] = (struct zw_iov){ 4096 * (i + 1), i + 1 };
	p.h.nr = nr;
	p.len = nr * sizeof(*v);
	return p;
}

static int file_of(const char *text)
{
	int fd = memfd_create("image", MFD_CLOEXEC);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

/* Sends a request, with a descriptor that is then the helper's; -1: without. */
static void send_fd(struct packet p, int fd)
{
	if (fd >= 0) {
		p.fd[0] = fd;
		p.nr_fd = 1;
	}
	dump_packet(&helper, &p);
	packet_close_fds(&p);
}

/* Sends a request that is answered, and returns the answer. */
static struct zw_reply ask(struct packet p)
{
	struct zw_reply r;
	int sk[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk), 0);
	send_fd(p, sk[1]);
	assert_int_equal(recv(sk[0], &r, sizeof(r), MSG_DONTWAIT), sizeof(r));
	close(sk[0]);
	return r;
}

/* The request fails the dump with these words, and nothing of it reaches the writer. */
static void refused(struct packet p, int fd, const char *words)
{
	uint32_t before = nr_written;

	failed = (struct zns_err)ZNS_ERR_INIT;
	uncharged = 0;
	send_fd(p, fd);
	assert_int_equal(failed.code, -EPROTO);
	assert_string_equal(failed.msg, words);
	assert_int_equal(uncharged, 1);
	assert_int_equal(nr_written, before);
	assert_int_equal(unsteady, 0);
	for (uint32_t n = 0; n < nr_written; n++)
		assert_int_equal(written[n].areas, 0);
}

static void open_pages(uint32_t image, const char *name)
{
	struct packet p = request(ZW_PAGES_OPEN, name);

	p.h.image = image;
	send_fd(p, -1);
	assert_int_equal(failed.code, 0);
}

/* ---- names and descriptors ---- */

static void names(void **state)
{
	static const uint32_t op[] = { ZW_IMG_FD, ZW_IMG_STREAM, ZW_PAGES_OPEN, ZW_FILE };
	static const char words[] = "criu sent an impossible image name";
	char name[ZW_NAME + 1];

	memset(name, 'n', ZW_NAME);
	name[ZW_NAME] = '\0';
	for (size_t n = 0; n < sizeof(op) / sizeof(*op); n++) {
		struct packet p = request(op[n], "core-1.img");

		refused(request(op[n], NULL), file_of("x"), words);
		refused(request(op[n], "../core-1.img"), file_of("x"), words);
		refused(request(op[n], name), file_of("x"), words);
		p.len--; /* without its end */
		refused(p, file_of("x"), words);
	}
	name[ZW_NAME - 1] = '\0';
	send_fd(request(ZW_IMG_FD, name), file_of("x"));
	assert_int_equal(nr_written, 1);
	assert_string_equal(written[0].name, name);
}

static void without_contents(void **state)
{
	failed = (struct zns_err)ZNS_ERR_INIT;
	refused(request(ZW_IMG_FD, "a.img"), -1, "image a.img came without its contents");
	refused(request(ZW_FILE, "a.txt"), -1, "file a.txt came without its contents");
	failed = (struct zns_err)ZNS_ERR_INIT;
	send_fd(request(ZW_IMG_STREAM, "a.img"), -1);
	assert_string_equal(failed.msg, "image a.img came without its pipe");
	assert_null(dump.streams);
}

static void unknown(void **state)
{
	refused(request(9999, NULL), -1, "unknown request 9999 from criu");
}

/* ---- pages ---- */

static void lists(void **state)
{
	static const char words[] = "criu sent an impossible list of pages";
	static const char rseq[] = "criu sent an impossible list of rseq areas";
	struct packet p;

	open_pages(0, "pages-1.img");
	for (uint32_t op = ZW_PAGES_MEM;; op = ZW_PAGES_UNSTEADY) {
		const char *says = op == ZW_PAGES_MEM ? words : rseq;

		refused(areas(op, 0), -1, says);
		p = areas(op, 2);
		p.h.pid = 0;
		refused(p, -1, says);
		p.h.pid = -1;
		refused(p, -1, says);
		p = areas(op, 2);
		p.h.nr = 3;
		refused(p, -1, says);
		p.h.nr = 1;
		refused(p, -1, says);
		p.h.nr = ZW_MAX_IOV + 1;
		refused(p, -1, says);
		if (op == ZW_PAGES_UNSTEADY)
			break;
	}
	failed = (struct zns_err)ZNS_ERR_INIT;
	send_fd(areas(ZW_PAGES_UNSTEADY, 2), -1);
	send_fd(areas(ZW_PAGES_MEM, 3), -1);
	send_fd(areas(ZW_PAGES_MEM, ZW_MAX_IOV), -1);
	assert_int_equal(failed.code, 0);
	assert_int_equal(unsteady, 1);
	assert_int_equal(nr_written, 1);
	assert_true(written[0].is_pages);
	assert_int_equal(written[0].areas, 3 + ZW_MAX_IOV);
	assert_int_equal(written[0].of_tasks, 6 + ZW_MAX_IOV * (ZW_MAX_IOV + 1) / 2);
}

/* Images are opened in the order of their numbers, and get nothing before that. */
static void order(void **state)
{
	static const char never[] = "criu sent pages of an image it never opened";
	struct packet p = request(ZW_PAGES_OPEN, "pages-2.img");

	p.h.image = 1;
	refused(p, -1, "criu opened pages image 1 after 0 images");
	assert_int_equal(charged, 0);
	refused(areas(ZW_PAGES_MEM, 1), -1, never);
	refused(request(ZW_PAGES_STREAM, NULL), file_of("x"), never);
	failed = (struct zns_err)ZNS_ERR_INIT;
	assert_int_equal(ask(request(ZW_PAGES_SEAL, NULL)).code, -EPROTO);
	assert_string_equal(failed.msg, "criu closed an image it never opened");
	failed = (struct zns_err)ZNS_ERR_INIT;
	open_pages(0, "pages-1.img");
	open_pages(1, "pages-2.img");
	assert_int_equal(charged, 2);
	p.h.image = 0;
	refused(p, -1, "criu opened pages image 0 after 2 images");
	/* its pages belong to the live dump */
	dump.pages[1].live = true;
	p = areas(ZW_PAGES_MEM, 1);
	p.h.image = 1;
	refused(p, -1, never);
	p.h.image = 2;
	refused(p, -1, never);
	failed = (struct zns_err)ZNS_ERR_INIT;
	send_fd(request(ZW_PAGES_STREAM, NULL), -1);
	assert_string_equal(failed.msg, "criu sent an impossible stream of pages");
	assert_null(dump.streams);
}

/* The answer to the end of an image comes when all of it was read, and the image can get no more. */
static void sealed(void **state)
{
	struct packet p = areas(ZW_PAGES_MEM, 2);
	struct zw_reply r;

	open_pages(0, "pages-1.img");
	open_pages(1, "pages-2.img");
	p.h.image = 1;
	send_fd(p, -1);
	send_fd(request(ZW_PAGES_STREAM, NULL), file_of("eight by"));
	r = ask(request(ZW_PAGES_SEAL, NULL));
	assert_int_equal(r.code, 0);
	assert_null(dump.streams);
	assert_string_equal(written[0].name, "pages-2.img");
	assert_false(written[0].sealed);
	assert_string_equal(written[1].name, "pages-1.img");
	assert_true(written[1].settled && written[1].sealed);
	assert_int_equal(written[1].bytes, 8);
	assert_int_equal(failed.code, 0);
}

/* ---- errors ---- */

static void a_stream_fails(void **state)
{
	struct zw_reply r;

	open_pages(0, "pages-1.img");
	send_fd(request(ZW_PAGES_STREAM, NULL), file_of("ab!cd"));
	r = ask(request(ZW_PAGES_SEAL, NULL));
	assert_int_equal(r.code, -EIO);
	assert_string_equal(r.msg, "image pages-1.img cannot be read");
	/* the reason stays the first one */
	send_fd(request(ZW_FAILED, "later"), -1);
	r = ask(request(ZW_WHY, NULL));
	assert_int_equal(r.code, -EIO);
	assert_string_equal(r.msg, "image pages-1.img cannot be read");
}

static void a_whole_image_fails(void **state)
{
	send_fd(request(ZW_IMG_STREAM, "ghost-file-1.img"), file_of("ab!cd"));
	assert_non_null(dump.streams);
	pthread_join(dump.streams->thread, NULL);
	free(dump.streams);
	dump.streams = NULL;
	assert_string_equal(failed.msg, "image ghost-file-1.img cannot be read");
	assert_false(written[0].sealed);
	failed = (struct zns_err)ZNS_ERR_INIT;
	send_fd(request(ZW_IMG_STREAM, "pages-7.img"), file_of("abcd"));
	pthread_join(dump.streams->thread, NULL);
	free(dump.streams);
	dump.streams = NULL;
	assert_true(written[1].is_pages && written[1].sealed);
	assert_int_equal(written[1].bytes, 4);
	assert_int_equal(failed.code, 0);
}

static void told(void **state)
{
	assert_int_equal(ask(request(ZW_WHY, NULL)).code, 0);
	send_fd(request(ZW_FAILED, "no more files"), -1);
	assert_int_equal(failed.code, -EIO);
	assert_string_equal(failed.msg, "a part of the dump failed: no more files");
	failed = (struct zns_err)ZNS_ERR_INIT;
	send_fd(request(ZW_FAILED, NULL), -1);
	assert_string_equal(failed.msg, "a part of the dump failed: (no reason)");
}

static void no_such_image(void **state)
{
	writer_code = -ENOSPC;
	send_fd(request(ZW_IMG_FD, "a.img"), file_of("x"));
	assert_int_equal(failed.code, -ENOSPC);
	assert_null(dump.copies);
	failed = (struct zns_err)ZNS_ERR_INIT;
	open_pages(0, "pages-1.img");
	assert_int_equal(ask(request(ZW_PAGES_SEAL, NULL)).code, -ENOSPC);
	failed = (struct zns_err)ZNS_ERR_INIT;
	writer_code = -EEXIST;
	send_fd(request(ZW_FILE, "a.img"), file_of("x"));
	assert_int_equal(failed.code, -EEXIST);
	assert_string_equal(
		failed.msg,
		"somebody wrote a.img into the image directory, and criu has an image of this name");
}

/* ---- files, and copies of small images ---- */

static struct packet file(const char *name, uint64_t bytes)
{
	struct packet p = request(ZW_FILE, name);

	p.h.off = bytes;
	return p;
}

static void files(void **state)
{
	int pipes[2];

	send_fd(file("a.txt", 3), file_of("abcdef")); /* it grows while it is read */
	assert_int_equal(failed.code, 0);
	assert_int_equal(written[0].bytes, 3);
	assert_true(written[0].beside && written[0].sealed);
	assert_true(dump.copies && dump.copies->beside);
	assert_null(dump.taken);
	send_fd(file("b.txt", 7), file_of("abcdef"));
	assert_int_equal(failed.code, -EBUSY);
	assert_string_equal(failed.msg,
			    "b.txt in the image directory became shorter while it was read");
	assert_false(written[1].sealed);
	failed = (struct zns_err)ZNS_ERR_INIT;
	assert_int_equal(pipe(pipes), 0);
	close(pipes[1]);
	send_fd(file("c.txt", 1), pipes[0]);
	assert_int_equal(failed.code, -EINVAL);
	assert_string_equal(failed.msg, "c.txt in the image directory is no regular file");
}

static bool copied(const char *name, uint64_t bytes)
{
	int fd = file_of("");
	bool yes;

	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	yes = keep_copy(&dump, name, fd, false);
	close(fd);
	return yes;
}

static void copies(void **state)
{
	uint64_t all = 0;
	uint32_t nr = 0;

	assert_false(copied("a.img", ZNS_HANDLE_COPY_MAX + 1));
	assert_true(copied("a.img", ZNS_HANDLE_COPY_MAX));
	assert_string_equal(dump.copies->name, "a.img");
	assert_int_equal(dump.copies->len, ZNS_HANDLE_COPY_MAX);
	anew();
	while (copied("a.img", ZNS_HANDLE_COPY_MAX))
		all += ZNS_HANDLE_COPY_MAX;
	assert_true(all > 0 && all <= ZNS_HANDLE_COPIES_MAX);
	assert_int_equal(dump.copies_len, all);
	assert_true(copied("b.img", ZNS_HANDLE_COPIES_MAX - all));
	anew();
	while (copied("a.img", 1))
		nr++;
	assert_int_equal(nr, COPIES_MAX);
	assert_int_equal(dump.nr_copies, nr);
}

static void copies_of_an_encrypted_dump(void **state)
{
	static uint8_t any;

	dump.v.crypt = (void *)&any;
	assert_false(copied("core-1.img", 10));
	assert_true(copied("inventory.img", 10));
	assert_int_equal(dump.nr_copies, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(names, reset),
		cmocka_unit_test_setup(without_contents, reset),
		cmocka_unit_test_setup(unknown, reset),
		cmocka_unit_test_setup(lists, reset),
		cmocka_unit_test_setup(order, reset),
		cmocka_unit_test_setup(sealed, reset),
		cmocka_unit_test_setup(a_stream_fails, reset),
		cmocka_unit_test_setup(a_whole_image_fails, reset),
		cmocka_unit_test_setup(told, reset),
		cmocka_unit_test_setup(no_such_image, reset),
		cmocka_unit_test_setup(files, reset),
		cmocka_unit_test_setup(copies, reset),
		cmocka_unit_test_setup(copies_of_an_encrypted_dump, reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) + reset(NULL);
}
