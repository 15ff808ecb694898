/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The load of a checkpoint without criu: speaks to zns-helper as criu does, so admission by znsd,
 * the writer, the commit and the reader are the product's own, and the memory that is dumped is
 * this process's. What it lacks is criu's own work before and after. Used where a run has to be in
 * model time (vtime/), which criu cannot follow.
 *
 *   ckptload dump CONTAINER MIB QOS DIR    the images go to the device; the handle to DIR, a new
 *                                          directory
 *   ckptload restore DIR                   into memory; every word is compared with what `dump` had
 *   ckptload exec PROGRAM ARGUMENT... --at NS    another program; after what it prints, its times
 *
 * Options: --device DEV, --admission A, --alloc A, --qos-max MIBPS, --weight N, --stripe SIZE,
 * --at NS (begin at that CLOCK_MONOTONIC), --seed N, --images N (small images, of 4 KiB), and of a
 * restore --qos MIBPS and --sample MS (how much of the memory is there, each so many ms).
 * Prints one line of JSON: the times of each step in ns of CLOCK_MONOTONIC, and what the helper
 * said.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "zns-wire.h"
#include "zns/util.h"

#define HELPER_FD 3
#define SEND_BYTES (8u << 20) /* criu passes so much memory to the helper in one request */

static struct {
	const char *device, *admission, *alloc, *qos, *qos_max, *weight, *stripe;
	uint64_t at, seed, images, sample;
} opt = { .seed = 1, .images = 8 };

static int helper = -1;
static uint8_t *mem;
static uint64_t mem_len;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "ckptload: %s: %s\n", what, why);
	exit(1);
}

static void begin_at(void)
{
	struct timespec t = { .tv_sec = opt.at / 1000000000, .tv_nsec = opt.at % 1000000000 };

	if (opt.at)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* ---- zns-helper
 * ---------------------------------------------------------------------------------------- */

static void start_helper(void)
{
	char path[4096];
	int sk[2];
	pid_t pid;

	if (zns_find_program("zns-helper", path, sizeof(path)))
		fail("zns-helper", "not found; set ZNS_LIBEXEC");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		fail("socket", strerror(errno));
	pid = fork();
	if (!pid) {
		dup2(sk[1], HELPER_FD);
		fcntl(HELPER_FD, F_SETFD, 0);
		execl(path, "zns-helper", NULL);
		_exit(127);
	}
	close(sk[1]);
	helper = sk[0];
	if (pid < 0)
		fail("fork", strerror(errno));
}

static void send_msg(struct zw_hdr *h, const void *payload, size_t len, const int *fds, unsigned nr)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * ZW_MAX_FDS)];
		struct cmsghdr align;
	} u = { .buf = { 0 } };
	struct iovec iov[2] = { { h, sizeof(*h) }, { (void *)payload, len } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = len ? 2 : 1 };

	h->version = ZW_VERSION;
	if (nr) {
		struct cmsghdr *c;

		m.msg_control = u.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * nr);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nr);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nr);
	}
	if (sendmsg(helper, &m, MSG_NOSIGNAL) < 0)
		fail("zns-helper", strerror(errno));
}

/* Returns the descriptor that came with the answer, or -1. */
static int ask(uint32_t op, struct zw_hdr *h, const void *payload, size_t len, int fd,
	       struct zw_reply *r)
{
	struct iovec iov = { r, sizeof(*r) };
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u;
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c;
	int sk[2], fds[2], got = -1;

	h->op = op;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		fail("socket", strerror(errno));
	fds[0] = sk[1];
	fds[1] = fd;
	send_msg(h, payload, len, fds, fd < 0 ? 1 : 2);
	close(sk[1]);
	if (recvmsg(sk[0], &m, MSG_CMSG_CLOEXEC) != sizeof(*r))
		fail("zns-helper", "died");
	close(sk[0]);
	r->msg[sizeof(r->msg) - 1] = 0;
	if (r->code)
		fail("refused", r->msg);
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(&got, CMSG_DATA(c), sizeof(got));
	return got;
}

static void begin(uint32_t op, const char *container, const char *qos, const char *dir,
		  struct zw_reply *r)
{
	struct zw_begin b = { .pid = op == ZW_DUMP_BEGIN ? getpid() : 0 };
	struct zw_hdr h = { 0 };
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		fail(dir, strerror(errno));
	snprintf(b.dev, sizeof(b.dev), "%s", opt.device ? opt.device : "");
	snprintf(b.container, sizeof(b.container), "%s", container);
	snprintf(b.qos, sizeof(b.qos), "%s", qos);
	snprintf(b.admission, sizeof(b.admission), "%s", opt.admission ? opt.admission : "");
	snprintf(b.alloc, sizeof(b.alloc), "%s", opt.alloc ? opt.alloc : "");
	snprintf(b.qos_max, sizeof(b.qos_max), "%s", opt.qos_max ? opt.qos_max : "");
	snprintf(b.stripe, sizeof(b.stripe), "%s", opt.stripe ? opt.stripe : "");
	snprintf(b.weight, sizeof(b.weight), "%s", opt.weight ? opt.weight : "");
	ask(op, &h, &b, sizeof(b), fd, r);
	close(fd);
}

/* ---- the process
 * --------------------------------------------------------------------------------------- */

static uint64_t word_at(uint64_t i)
{
	uint64_t x = (opt.seed << 40) + (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 27);
}

static void take_memory(uint64_t len)
{
	mem_len = len;
	mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		fail("memory", strerror(errno));
}

static void send_memory(void)
{
	for (uint64_t at = 0; at < mem_len; at += SEND_BYTES) {
		struct zw_iov v = { (uintptr_t)mem + at,
				    zns_min(mem_len - at, (uint64_t)SEND_BYTES) };
		struct zw_hdr h = { .op = ZW_PAGES_MEM, .pid = getpid(), .nr = 1 };

		send_msg(&h, &v, sizeof(v), NULL, 0);
	}
}

/* The images beside the pages: registers, mappings, descriptors … */
static void send_small(unsigned n)
{
	struct zw_hdr h = { .op = ZW_IMG_FD };
	char name[ZW_NAME], block[4096];
	int fd = memfd_create("image", MFD_CLOEXEC);

	memset(block, (int)n, sizeof(block));
	if (fd < 0 || write(fd, block, sizeof(block)) != sizeof(block))
		fail("image", strerror(errno));
	snprintf(name, sizeof(name), "core-%u.img", n);
	send_msg(&h, name, strlen(name) + 1, &fd, 1);
	close(fd);
}

static void put_text(const char *key, const char *text)
{
	printf(", \"%s\": \"", key);
	for (; *text; text++)
		putchar(*text == '"' || *text == '\\' || *text == '\n' ? '\'' : *text);
	putchar('"');
}

static int dump(const char *container, const char *mib, const char *qos, const char *dir)
{
	struct zw_reply r, admitted;
	uint64_t start, go, sealed, frozen;
	struct zw_hdr h = { 0 };

	take_memory(MIB(strtoull(mib, NULL, 10)));
	for (uint64_t i = 0; i < mem_len / 8; i++)
		((uint64_t *)mem)[i] = word_at(i);
	if (mkdir(dir, 0700))
		fail(dir, strerror(errno));
	begin_at();
	start = zns_mono_ns();
	start_helper();
	begin(ZW_DUMP_BEGIN, container, qos, dir, &admitted);
	go = zns_mono_ns();
	h.op = ZW_PAGES_OPEN;
	send_msg(&h, "pages-1.img", sizeof("pages-1.img"), NULL, 0);
	send_memory();
	h = (struct zw_hdr){ 0 };
	ask(ZW_PAGES_SEAL, &h, NULL, 0, -1, &r);
	sealed = zns_mono_ns();
	for (unsigned n = 0; n < opt.images; n++)
		send_small(n);
	frozen = zns_mono_ns() - go;
	h = (struct zw_hdr){ .off = frozen / 1000 };
	ask(ZW_COMMIT, &h, NULL, 0, -1, &r);
	printf("{\"kind\": \"dump\", \"container\": \"%s\", \"bytes\": %llu, \"start_ns\": %llu, \"admitted_ns\": %llu, "
	       "\"read_ns\": %llu, \"end_ns\": %llu",
	       container, (unsigned long long)mem_len, (unsigned long long)start,
	       (unsigned long long)go, (unsigned long long)sealed,
	       (unsigned long long)zns_mono_ns());
	put_text("admitted", admitted.msg);
	put_text("committed", r.msg);
	printf("}\n");
	return 0;
}

/* Returns how much of the memory is restored. */
static uint64_t filled(void)
{
	uint64_t nr = mem_len / 4096, n = 0;
	unsigned char *in = malloc(nr + 1);

	if (!in || mincore(mem, mem_len, in))
		fail("mincore", strerror(errno));
	for (uint64_t i = 0; i < nr; i++)
		n += in[i] & 1;
	free(in);
	return n * 4096;
}

#define SAMPLES 4096
static struct {
	uint64_t ns, bytes;
} samples[SAMPLES];
static unsigned nr_samples;
static volatile bool sampled;

static void *sampler(void *arg)
{
	struct timespec step = { (time_t)(opt.sample / 1000), (long)(opt.sample % 1000) * 1000000 };

	while (!sampled && nr_samples < SAMPLES) {
		samples[nr_samples].ns = zns_mono_ns();
		samples[nr_samples++].bytes = filled();
		nanosleep(&step, NULL);
	}
	return arg;
}

static void put_samples(void)
{
	printf(", \"samples\": [");
	for (unsigned i = 0; i < nr_samples; i++)
		printf("%s[%llu, %llu]", i ? ", " : "", (unsigned long long)samples[i].ns,
		       (unsigned long long)samples[i].bytes);
	printf("]");
}

static int restore(const char *dir)
{
	pthread_t watcher;

	struct zw_reply r;
	uint64_t start, go;
	struct zw_iov v;
	struct zw_hdr h = { 0 };

	begin_at();
	start = zns_mono_ns();
	start_helper();
	begin(ZW_RESTORE_BEGIN, "", opt.qos ? opt.qos : "", dir, &r);
	go = zns_mono_ns();
	ask(ZW_OPEN, &h, "pages-1.img", sizeof("pages-1.img"), -1, &r);
	take_memory(r.size);
	v = (struct zw_iov){ (uintptr_t)mem, mem_len };
	h = (struct zw_hdr){ .image = r.image, .nr = 1 };
	if (opt.sample && pthread_create(&watcher, NULL, sampler, NULL))
		fail("thread", "cannot be started");
	ask(ZW_READ, &h, &v, sizeof(v), -1, &r);
	sampled = true;
	printf("{\"kind\": \"restore\", \"bytes\": %llu, \"start_ns\": %llu, \"admitted_ns\": %llu, "
	       "\"end_ns\": %llu",
	       (unsigned long long)mem_len, (unsigned long long)start, (unsigned long long)go,
	       (unsigned long long)zns_mono_ns());
	if (opt.sample) {
		pthread_join(watcher, NULL);
		put_samples();
	}
	printf("}\n");
	for (uint64_t i = 0; i < mem_len / 8; i++)
		if (((uint64_t *)mem)[i] != word_at(i))
			fail("restore", "the memory is not what was dumped");
	return 0;
}

/* argv: PROGRAM ARGUMENT... --at NS */
static int other_program(int argc, char **argv)
{
	int status = 0;
	uint64_t start;
	pid_t pid;

	opt.at = strtoull(argv[argc - 1], NULL, 10);
	argv[argc - 2] = NULL;
	begin_at();
	start = zns_mono_ns();
	pid = fork();
	if (!pid) {
		execv(argv[0], argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		fail(argv[0], strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 127)
		fail(argv[0], "was killed, or could not be run");
	printf("\n{\"start_ns\": %llu, \"end_ns\": %llu}\n", (unsigned long long)start,
	       (unsigned long long)zns_mono_ns());
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "admission", required_argument, NULL, 'a' },
		{ "alloc", required_argument, NULL, 'l' },
		{ "at", required_argument, NULL, 't' },
		{ "seed", required_argument, NULL, 's' },
		{ "images", required_argument, NULL, 'i' },
		{ "qos", required_argument, NULL, 'q' },
		{ "qos-max", required_argument, NULL, 'm' },
		{ "sample", required_argument, NULL, 'p' },
		{ "stripe", required_argument, NULL, 'e' },
		{ "weight", required_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	int c, rc = 2;

	if (argc > 4 && !strcmp(argv[1], "exec") && !strcmp(argv[argc - 2], "--at"))
		return other_program(argc - 2, argv + 2);
	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (c == 'd')
			opt.device = optarg;
		else if (c == 'a')
			opt.admission = optarg;
		else if (c == 'l')
			opt.alloc = optarg;
		else if (c == 'q')
			opt.qos = optarg;
		else if (c == 'm')
			opt.qos_max = optarg;
		else if (c == 'p')
			opt.sample = strtoull(optarg, NULL, 10);
		else if (c == 'e')
			opt.stripe = optarg;
		else if (c == 'w')
			opt.weight = optarg;
		else if (c == 't')
			opt.at = strtoull(optarg, NULL, 10);
		else if (c == 's')
			opt.seed = strtoull(optarg, NULL, 10);
		else if (c == 'i')
			opt.images = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	argv += optind;
	argc -= optind;
	if (argc == 5 && !strcmp(argv[0], "dump"))
		rc = dump(argv[1], argv[2], argv[3], argv[4]);
	else if (argc == 2 && !strcmp(argv[0], "restore"))
		rc = restore(argv[1]);
	else
		fprintf(stderr,
			"usage: ckptload dump CONTAINER MIB QOS DIR | restore DIR | exec PROGRAM ARGUMENT... --at NS\n");
	if (helper >= 0) { /* the helper exits when its socket is closed */
		close(helper);
		wait(NULL);
	}
	return rc;
}
