/* SPDX-License-Identifier: GPL-2.0-only */
/* Files of criu/adapter, without criu: what they do at moments that a dump or restore seldom has. */
#include <arpa/inet.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "adapter.h"
#include "zns-freeze.h"

/* ---- criu, and the helper ---- */

#define PAGES(n) ((n)*4096UL)

struct cr_options opts = { .mode = CR_RESTORE };
struct kerndat_s kdat;
struct pstree_item *current;
struct zns_session zns_session;
struct zw_begin zns_opts;
bool zns_record_off;
unsigned int zns_record_s;

static unsigned int asked, answered; /* requests to the helper, and answers that were taken */
static struct zw_reply reply; /* the helper's next answer */
static int reply_fd = -1, sent_fd = -1; /* its descriptor; a copy of a request's first one */
static unsigned int sent_nr;
static struct epoll_rfd *events[8];
static unsigned int nr_events;
static void *places;

void print_on_level(unsigned int level, const char *format, ...)
{
}

bool zns_err_is_new(const char *format, ...)
{
	return false;
}

bool zns_active(void)
{
	return true;
}

bool zns_lazy_on(void)
{
	return zns_session.lazy;
}

bool zns_extends(void)
{
	return false;
}

int get_service_fd(enum sfd_type type)
{
	return -1;
}

int epoll_add_rfd(int epfd, struct epoll_rfd *rfd)
{
	events[nr_events++] = rfd;
	return 0;
}

int zns_holder_begin(int epollfd)
{
	return 0;
}

int close_safe(int *fd)
{
	int ret = *fd < 0 ? 0 : close(*fd);

	*fd = -1;
	return ret;
}

void *rst_mem_remap_ptr(unsigned long pos, int type)
{
	return places;
}

int zns_answer_socket(int sk[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk);
}

int zns_send(struct zns_msg *m)
{
	asked++;
	return 0;
}

int zns_recv_reply(int sk, struct zw_reply *r, int *fd)
{
	answered++;
	*r = reply;
	return r->code;
}

int zns_ask(struct zns_msg *m, struct zw_reply *r, int *fd)
{
	*r = reply;
	if (fd)
		*fd = reply_fd;
	return 0;
}

int zns_ask_begin(struct zns_msg *m, struct zw_reply *r)
{
	sent_nr = m->h.nr;
	sent_fd = dup(m->fd[0]);
	return dup(m->fd[0]);
}

/* ---- memory that runs out ---- */

static int allocations = -1; /* allocations that succeed before one fails; -1: none fails */

static bool fails(void)
{
	return allocations >= 0 && !allocations--;
}

void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_malloc(size_t len)
{
	return fails() ? NULL : __real_malloc(len);
}

void *__real_calloc(size_t nr, size_t len);
void *__wrap_calloc(size_t nr, size_t len);
void *__wrap_calloc(size_t nr, size_t len)
{
	return fails() ? NULL : __real_calloc(nr, len);
}

void *__real_realloc(void *p, size_t len);
void *__wrap_realloc(void *p, size_t len);
void *__wrap_realloc(void *p, size_t len)
{
	return fails() ? NULL : __real_realloc(p, len);
}

/* ---- is a connection tracked? ---- */

static char netlink[64] __attribute__((aligned(8)));
static ssize_t netlink_len;

int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
	return dup(STDIN_FILENO);
}

ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags)
{
	return (ssize_t)len;
}

ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags)
{
	memcpy(buf, netlink, sizeof(netlink));
	return netlink_len;
}

/* Makes the kernel answer that its table has @nr entries. */
static void entries(unsigned int nr, unsigned short type)
{
	struct nlmsghdr *h = (void *)netlink;
	struct nlattr *a = (void *)(netlink + NLMSG_SPACE(sizeof(struct nfgenmsg)));

	memset(netlink, 0, sizeof(netlink));
	*a = (struct nlattr){ sizeof(*a) + sizeof(nr), CTA_STATS_GLOBAL_ENTRIES };
	nr = htonl(nr);
	memcpy(a + 1, &nr, sizeof(nr));
	netlink_len = (char *)(a + 1) + sizeof(nr) - netlink;
	h->nlmsg_len = netlink_len;
	h->nlmsg_type = type;
}

/* Only a kernel that says 0 has none: where it says nothing, criu must look for itself. */
static void tracked_connections(void **state)
{
	const unsigned short stats = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET_STATS;
	struct nlattr *a = (void *)(netlink + NLMSG_SPACE(sizeof(struct nfgenmsg)));

	entries(0, stats);
	assert_true(zns_no_conntrack());
	entries(3, stats);
	assert_false(zns_no_conntrack());
	entries(0, NLMSG_ERROR); /* a kernel without ctnetlink */
	assert_false(zns_no_conntrack());
	entries(0, stats);
	netlink_len = NLMSG_LENGTH(0);
	assert_false(zns_no_conntrack());
	netlink_len = -1;
	assert_false(zns_no_conntrack());
	entries(0, stats);
	a->nla_type = CTA_STATS_GLOBAL_ENTRIES + 1;
	assert_false(zns_no_conntrack());
	entries(0, stats);
	a->nla_len = sizeof(*a) - 1;
	assert_false(zns_no_conntrack());
	entries(0, stats);
	a->nla_len += 4; /* the attribute ends behind the answer */
	assert_false(zns_no_conntrack());
}

/* ---- CPU affinity ---- */

long __wrap_syscall(long nr, ...);
long __wrap_syscall(long nr, ...) /* sched_getaffinity: a thread that may use the last CPU alone */
{
	unsigned long *cpus;
	va_list args;

	va_start(args, nr);
	(void)va_arg(args, pid_t);
	(void)va_arg(args, size_t);
	cpus = va_arg(args, unsigned long *);
	va_end(args);
	cpus[ZNS_CPUS_LONGS - 1] = 1UL << 63;
	return ZNS_CPUS_LONGS * sizeof(*cpus);
}

/* A dump without a thread's CPUs would restore it on all of them. */
static void affinity(void **state)
{
	ThreadCoreEntry core = THREAD_CORE_ENTRY__INIT;

	zns_affinity_begin(getpid());
	allocations = 0;
	assert_int_equal(zns_dump_affinity(1, &core), -1);
	assert_false(core.has_zns_cpus);
	assert_int_equal(zns_dump_affinity(1, &core), 0);
	assert_true(core.has_zns_cpus);
	assert_int_equal(core.zns_cpus.len, ZNS_CPUS_LONGS * sizeof(long));
	free(core.zns_cpus.data);
}

/* ---- pages ---- */

#define WINDOW (1UL << 20) /* as in zns-pages.c */

/* The helper writes into no window that is unmapped, whichever of them it fills at the moment. */
static void windows(void **state)
{
	struct zns_img zi = { .pages = true, .id = 1, .size = 16 * WINDOW, .fd = -1 };
	struct cr_img img = { .zns = &zi };
	char page[4096];

	for (unsigned long turns = 0; turns < 4; turns++) {
		asked = answered = 0;
		for (unsigned long at = 0; at <= turns; at++)
			assert_int_equal(zns_pread(&img, page, sizeof(page), at * WINDOW), 0);
		assert_int_equal(asked, turns + 2);
		assert_int_equal(answered, turns + 1);
		zns_pages_drop_windows(&zi);
		assert_int_equal(answered, asked);
		assert_null(zi.windows);
	}
}

/* A unit that is damaged is no page, in whichever window it is. */
static void damaged(void **state)
{
	struct zns_img zi = { .pages = true, .id = 1, .size = 16 * WINDOW, .fd = -1 };
	struct cr_img img = { .zns = &zi };
	char page[4096];

	for (unsigned long at = 0; at < 3; at++) {
		for (unsigned long n = 0; n < at; n++)
			assert_int_equal(zns_pread(&img, page, sizeof(page), n * WINDOW), 0);
		reply.code = -EBADMSG;
		assert_int_equal(zns_pread(&img, page, sizeof(page), at * WINDOW), -1);
		assert_int_equal(zns_pread(&img, page, sizeof(page), at * WINDOW), -1);
		reply.code = 0;
		zns_pages_drop_windows(&zi);
	}
}

/* The list of places ends with the last area, and nothing behind it is looked at. */
static void places_to_fill(void **state)
{
	char *mem = mmap(NULL, PAGES(2), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	struct zns_img zi = { .pages = true, .id = 1, .size = PAGES(6), .fd = -1 };
	struct cr_img img = { .zns = &zi };
	struct task_restore_args *ta = calloc(1, sizeof(*ta));
	struct restore_vma_io *one, *two;
	struct zw_place got[3];

	assert_ptr_not_equal(mem, MAP_FAILED);
	assert_int_equal(mprotect(mem + PAGES(1), PAGES(1), PROT_NONE), 0);
	one = places = mem + PAGES(1) - RIO_SIZE(2) - RIO_SIZE(1);
	one->nr_iovs = 2;
	one->off = PAGES(1);
	one->iovs[0] = (struct iovec){ (void *)PAGES(100), PAGES(2) };
	one->iovs[1] = (struct iovec){ (void *)PAGES(200), PAGES(1) };
	two = places + RIO_SIZE(2);
	two->nr_iovs = 1;
	two->off = PAGES(5);
	two->iovs[0] = (struct iovec){ (void *)PAGES(300), PAGES(1) };
	ta->vma_ios_n = 2;
	assert_int_equal(zns_fill_begin(&img, ta), 0);
	assert_int_equal(sent_nr, 3);
	assert_int_equal(lseek(sent_fd, 0, SEEK_END), sizeof(got));
	assert_int_equal(pread(sent_fd, got, sizeof(got), 0), sizeof(got));
	assert_int_equal(got[0].off, PAGES(1));
	assert_int_equal(got[1].off, PAGES(3));
	assert_int_equal(got[2].off, PAGES(5));
	assert_int_equal(got[0].base, PAGES(100));
	assert_int_equal(got[1].base, PAGES(200));
	assert_int_equal(got[2].base, PAGES(300));
	assert_int_equal(got[0].len + got[1].len + got[2].len, PAGES(4));
	close_safe(&sent_fd);
	close(ta->zns_fill);
	free(ta);
	munmap(mem, PAGES(2));
}

/* ---- a lazy restore ---- */

static unsigned int completed;

static int io_complete(struct page_read *pr, unsigned long vaddr, unsigned long nr)
{
	completed++;
	return 0;
}

/* A process whose first pages cannot be listed is none. One that ends has no first pages any more,
 * and answers about it are nobody's. */
static void forgotten(void **state)
{
	const struct zw_first list = { .image = 1, .off = 0, .len = PAGES(4) };
	PagemapEntry entry = PAGEMAP_ENTRY__INIT, *entries_of[] = { &entry };
	struct zns_img zi = { .pages = true, .id = 1, .size = PAGES(4), .fd = -1 };
	struct cr_img img = { .zns = &zi };
	struct page_read pr = {
		.pi = &img, .pmes = entries_of, .nr_pmes = 1, .io_complete = io_complete
	};
	unsigned long start, end;
	int n = 0;

	entry.vaddr = PAGES(100);
	entry.nr_pages = 4;
	entry.has_nr_pages = entry.has_flags = true;
	entry.flags = PE_PRESENT;
	reply_fd = memfd_create("first", 0);
	assert_int_equal(write(reply_fd, &list, sizeof(list)), sizeof(list));
	reply.size = sizeof(list);
	assert_int_equal(zns_lazy_begin(-1, NULL), 0);
	for (allocations = 0; zns_lazy_open(&pr); allocations = ++n)
		zns_lazy_forget(&pr);
	allocations = -1;
	assert_int_equal(n, 3); /* the process, its entries and its ranges: each failed once */
	assert_true(zns_first_any());
	assert_true(zns_lazy_first(&pr, &start, &end));
	assert_int_equal(start, PAGES(100));
	assert_int_equal(end, PAGES(104));

	reply = (struct zw_reply){ .image = 0 };
	zns_lazy_to(-1, PAGES(100));
	assert_int_equal(zns_lazy_read(&pr, PAGES(100), 1), 0);
	assert_true(events[1]->read_event(events[1]) >= 0);
	assert_int_equal(completed, 1);
	zns_lazy_to(-1, PAGES(101));
	assert_int_equal(zns_lazy_read(&pr, PAGES(101), 1), 0);
	zns_lazy_forget(&pr);
	assert_true(events[1]->read_event(events[1]) >= 0);
	assert_int_equal(completed, 1);
	assert_false(zns_first_any());
	assert_false(zns_lazy_first(&pr, &start, &end));
}

/* ---- the archive of a tmpfs ---- */

static char tmp[64];
static int tmp_dir, tmp_out;

static void shell(const char *command)
{
	char line[800];

	snprintf(line, sizeof(line), "cd %s && %s", tmp, command);
	assert_int_equal(system(line), 0);
}

static int tmp_begin(void **state)
{
	strcpy(tmp, "/tmp/zns-adapter-XXXXXX");
	if (!mkdtemp(tmp))
		return -1;
	shell("mkdir -p t/sub/deep && : >t/sub/empty && ln -s sub/empty t/link && mkfifo -m 600 t/fifo && mknod -m 666 t/null c 1 3 && chmod 1777 t");
	return 0;
}

static int tmp_end(void **state)
{
	shell("rm -rf ../${PWD##*/}");
	return 0;
}

/* What zns_tmpfs_archive returns: 0 it made the archive, 1 tar has to. */
static int archived(void)
{
	char path[80];
	int ret;

	snprintf(path, sizeof(path), "%s/t", tmp);
	tmp_dir = open(path, O_RDONLY | O_DIRECTORY);
	snprintf(path, sizeof(path), "%s/out", tmp);
	tmp_out = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_true(tmp_dir >= 0 && tmp_out >= 0);
	ret = zns_tmpfs_archive(tmp_dir, tmp_out, 0);
	close(tmp_dir);
	return ret;
}

/* tar writes so much, and gzip gives it back. */
static void by_tar(size_t len)
{
	char *data = malloc(len + 1), path[80], command[120];
	FILE *f;

	for (size_t i = 0; i < len; i++)
		data[i] = (char)(i * 7 ^ i >> 9);
	snprintf(path, sizeof(path), "%s/want", tmp);
	f = fopen(path, "w");
	assert_true(f && fwrite(data, 1, len, f) == len && !fclose(f));
	assert_string_equal(zns_tmpfs_gzip(), "--create");
	for (size_t at = 0; at < len;) {
		ssize_t n = write(zns_tmpfs_out(tmp_out), data + at, len - at);

		assert_true(n > 0);
		at += n;
	}
	assert_int_equal(zns_tmpfs_end(0), 0);
	close(tmp_out);
	snprintf(command, sizeof(command), "gzip -dc <out | cmp - want");
	shell(command);
	free(data);
}

static void tmpfs_empty(void **state)
{
	assert_int_equal(archived(), 0);
	assert_string_equal(zns_tmpfs_gzip(), "--gzip"); /* nothing is under way */
	assert_int_equal(zns_tmpfs_end(0), 0);
	close(tmp_out);
	shell("mkdir x && tar -C x -xpzf out && for d in t x; do (cd $d && find . -printf '%p %y %m %l %s %T@\\n' | sort) >$d.list; done && "
	      "sed -i 's/\\.[0-9]*$//' t.list x.list && cmp t.list x.list");
}

/* An archive that is made here has at most 124 entries, the top among them. */
static void tmpfs_many(void **state)
{
	shell("rm -rf t/* && for i in $(seq 123); do : >t/$i; done");
	assert_int_equal(archived(), 0);
	close(tmp_out);
	shell(": >t/124");
	assert_int_equal(archived(), 1);
	by_tar(0);
}

static void tmpfs_by_tar(void **state)
{
	shell("echo content >t/full");
	assert_int_equal(archived(), 1);
	by_tar(200000);
	shell("rm t/full && ln t/sub/empty t/again");
	assert_int_equal(archived(), 1);
	by_tar(65535);
	shell("rm t/again && mkdir -p t/1/2/3/4/5/6/7");
	assert_int_equal(archived(), 0); /* the deepest that there may be */
	close(tmp_out);
	shell("mkdir -p t/1/2/3/4/5/6/7/8");
	assert_int_equal(archived(), 1);
	by_tar(65536);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tracked_connections),
		cmocka_unit_test(affinity),
		cmocka_unit_test(windows),
		cmocka_unit_test(damaged),
		cmocka_unit_test(places_to_fill),
		cmocka_unit_test(forgotten),
		cmocka_unit_test_setup_teardown(tmpfs_empty, tmp_begin, tmp_end),
		cmocka_unit_test_setup_teardown(tmpfs_many, tmp_begin, tmp_end),
		cmocka_unit_test_setup_teardown(tmpfs_by_tar, tmp_begin, tmp_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
