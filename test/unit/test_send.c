/* SPDX-License-Identifier: GPL-2.0-only */
/* The helper's sender of a dump to a page server: what it does with pages that cannot be read. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "../../zns/helper/dump/send.c"

#define PAGE 4096UL
#define PAGES 64UL
#define HOLE 10UL /* the page that goes */

/* ---- a task ---- */

static uint8_t *memory;
static pid_t task;
static int orders[2], answers[2];

static uint8_t content(size_t page)
{
	return (uint8_t)(page * 3 + 1);
}

static void task_begin(void)
{
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(pipe(orders) | pipe(answers), 0);
	task = fork();
	assert_true(task >= 0);
	if (!task) {
		char c;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (size_t n = 0; n < PAGES; n++)
			memset(memory + n * PAGE, content(n), PAGE);
		while (write(answers[1], "r", 1) == 1 && read(orders[0], &c, 1) == 1)
			munmap(memory + HOLE * PAGE, PAGE);
		_exit(0);
	}
	assert_int_equal(read(answers[0], &(char){ 0 }, 1), 1);
}

static void task_unmaps(void)
{
	assert_int_equal(write(orders[1], "u", 1), 1);
	assert_int_equal(read(answers[0], &(char){ 0 }, 1), 1);
}

static void task_end(void)
{
	kill(task, SIGKILL);
	waitpid(task, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(orders[i]);
		close(answers[i]);
	}
	munmap(memory, PAGES * PAGE);
}

/* ---- criu ---- */

static struct helper helper;
static struct zw_chunk *chunk;
static struct zw_reply reply;

static struct packet request(uint32_t op)
{
	struct packet p = { .h = { .op = op, .pid = task } };

	return p;
}

/* One request and its reply in @reply; a descriptor that came with it, or -1. */
static int ask(struct packet *p)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} u;
	struct iovec v = { &reply, sizeof(reply) };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof(u)
	};
	struct zns_err err = ZNS_ERR_INIT;
	int sk[2], fd = -1;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk), 0);
	p->fd[0] = sk[1];
	p->nr_fd = p->nr_fd ? p->nr_fd : 1;
	if (p->h.op != ZW_SEND_BEGIN)
		send_packet(&helper, p);
	else if (send_begin(&helper, p, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(recvmsg(sk[0], &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT), sizeof(reply));
	if (m.msg_controllen && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	close(sk[0]);
	close(sk[1]);
	return fd;
}

static void begin(uint32_t how)
{
	struct packet p = request(ZW_SEND_BEGIN);
	int fd;

	helper = (struct helper){ .sk = -1, .criu = -1, .dir = -1, .fills = -1 };
	p.h.nr = how;
	p.len = sizeof(struct zw_send);
	fd = ask(&p);
	if (reply.kind == ZW_KIND_NONE) {
		print_message("%s\n", reply.msg);
		task_end();
		skip(); /* a kernel without the tracker */
	}
	chunk = mmap(NULL, ZW_CHUNKS * sizeof(*chunk), PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(chunk, MAP_FAILED);
	close(fd);
}

static void freeze_and_list(void)
{
	struct zw_area area = { (uintptr_t)memory, (uintptr_t)memory + PAGES * PAGE, 0 };
	struct packet p = request(ZW_LIVE_FINAL);
	int fd = zns_memfd("areas"), guards;

	kill(task, SIGSTOP);
	assert_int_equal(waitpid(task, NULL, WUNTRACED), task);
	assert_int_equal(write(fd, &area, sizeof(area)), sizeof(area));
	p.h.nr = 1;
	p.len = (size_t)snprintf((char *)p.payload, ZW_NAME, "pagemap-1.img") + 1;
	p.nr_fd = 2;
	p.fd[1] = fd;
	guards = ask(&p);
	close(fd);
	if (guards >= 0)
		close(guards);
	assert_int_equal(reply.kind, ZW_KIND_PAGES);
	assert_int_equal(reply.size, PAGES * PAGE);
}

/* Everything that comes is what the task had. Returns bits of the pages that came. */
static uint64_t fetch_all(void)
{
	uint64_t came = 0;

	for (uint32_t n = 0;; n ^= 1) {
		struct packet p = request(ZW_SEND_PAGES);
		const uint8_t *data = chunk[n].data;

		p.h.image = n;
		ask(&p);
		if (reply.code || !reply.size)
			return came;
		for (uint64_t r = 0; r < reply.size; r++) {
			const struct zw_run *run = &chunk[n].run[r];
			size_t first = (run->vaddr - (uintptr_t)memory) / PAGE;

			for (size_t i = 0; i < run->len; i++)
				assert_int_equal(*data++, content(first + i / PAGE));
			for (size_t i = 0; i < run->len / PAGE; i++) {
				assert_false(came >> (first + i) & 1); /* once */
				came |= 1ULL << (first + i);
			}
		}
	}
}

static void end(void)
{
	munmap(chunk, ZW_CHUNKS * sizeof(*chunk));
	munmap(helper.send->chunk, ZW_CHUNKS * sizeof(*chunk));
	free(helper.send->run);
	send_end(&helper);
	free(helper.send->l.task); /* the helper itself ends now */
	free(helper.send);
	task_end();
}

/* ---- tests ---- */

/*
 * A page that a running task unmaps before it is read is left out; all others come. For the next
 * dump it is unknown: were it taken for one that was sent, its place would have old content there.
 */
static void unmapped_after_the_freeze(void **state)
{
	struct live_task *t;
	uint64_t hole;

	task_begin();
	begin(ZW_ROUNDS_COPY);
	freeze_and_list();
	kill(task, SIGCONT);
	task_unmaps();
	helper.send->l.again = true; /* a keeper would want to know */
	assert_int_equal(fetch_all(), ~(1ULL << HOLE));
	assert_int_equal(reply.code, 0);
	t = &helper.send->l.task[0];
	hole = (uintptr_t)memory + HOLE * PAGE;
	assert_true(zns_spans_has(&t->pending, hole));
	assert_false(zns_spans_has(&t->parent, hole));
	assert_false(zns_spans_has(&t->areas, hole));
	assert_true(zns_spans_has(&t->parent, hole + PAGE));
	assert_true(zns_spans_has(&t->areas, hole + PAGE));
	end();
}

/* In the freeze no page goes by itself: one that cannot be read is an error. */
static void unreadable_in_the_freeze(void **state)
{
	task_begin();
	begin(0);
	freeze_and_list();
	kill(task, SIGCONT); /* so that it can take the page away behind the helper's back */
	task_unmaps();
	fetch_all();
	assert_int_equal(reply.code, -EFAULT);
	assert_non_null(strstr(reply.msg, "cannot read the memory of task"));
	end();
}

/* Pages behind the last chunk, and of a task whose pages have all been sent. */
static void asked_at_a_wrong_time(void **state)
{
	struct packet p = request(ZW_SEND_PAGES);

	task_begin();
	begin(0);
	freeze_and_list();
	p.h.pid = task;
	p.h.image = ZW_CHUNKS;
	ask(&p);
	assert_int_equal(reply.code, -EPROTO);
	assert_true(fetch_all() == ~0ULL);
	assert_int_equal(reply.code, 0);
	p = request(ZW_SEND_PAGES);
	ask(&p);
	assert_int_equal(reply.code, -EPROTO);
	end();
}

/* What lies side by side is one run, also if it is read in several parts. Pages of the parent are
 * in runs of their own, and take no room. */
static void runs_are_joined(void **state)
{
	struct zw_run all[] = { { 0x1000, 0x3000, 0 },
				{ 0x4000, 0x1000, 0 },
				{ 0x5000, 0x1000, 1 },
				{ 0x6000, 0x1000, 1 },
				{ 0x8000, 0x1000, 1 } };
	struct send s = { .run = all, .nr = sizeof(all) / sizeof(*all) };
	struct filling f = { .s = &s, .c = calloc(1, sizeof(*f.c)) };
	const struct zw_run *run = f.c->run;

	emit(&f, 0x1000);
	assert_int_equal(s.at, 0);
	emit(&f, 0x2000);
	assert_int_equal(s.at, 1);
	emit(&f, 0x1000);
	assert_int_equal(f.nr, 1);
	assert_true(run[0].vaddr == 0x1000 && run[0].len == 0x4000 && !run[0].parent);
	for (int n = 0; n < 3; n++)
		emit(&f, 0x1000);
	assert_int_equal(s.at, s.nr);
	assert_int_equal(f.nr, 3);
	assert_true(run[1].vaddr == 0x5000 && run[1].len == 0x2000 && run[1].parent);
	assert_true(run[2].vaddr == 0x8000 && run[2].len == 0x1000 && run[2].parent);
	assert_int_equal(f.bytes, 0x4000);
	free(f.c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unmapped_after_the_freeze),
		cmocka_unit_test(unreadable_in_the_freeze),
		cmocka_unit_test(asked_at_a_wrong_time),
		cmocka_unit_test(runs_are_joined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
