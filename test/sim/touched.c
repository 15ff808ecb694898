/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which 64 KiB blocks of running, unmodified processes were touched, and which written.
 *
 *	touched ROOT		the process ROOT and all below it
 *
 * A line on standard input is a question, "end" the last one. The answer is a line for each block,
 * "KEY FLAGS", then an empty line. KEY: PID or inode, and the block's number in there. FLAGS: r
 * resident, t touched since the last question, w written since then.
 *
 * The kernel keeps one bit for each page that says that it was accessed, and shows it per area
 * (Referenced in smaps) only. So each block is made an area of its own: in every other block we let
 * the process call madvise(MADV_DONTDUMP). MADV_COLD takes the bits away and, unlike clear_refs,
 * flushes the TLBs, in which a page could be used without setting its bit again. It leaves out
 *pages that several processes map: for those there is clear_refs. Written blocks are told by
 *zns/track.
 *
 * Not seen: the order within a question's time, and how often. Memory that is new is split after it
 * was first asked for, so its touched blocks are those with pages in them. Code and files are left
 * out; shared memory is seen as touched, not as written. mremap() of more than one block fails
 * (EFAULT), which allocators survive.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "zns/inject.h"
#include "zns/track.h"
#include "zns/util.h"

#define BLOCK KIB(64)
#define PAGE KIB(4)
#define PROCS 64
#define CALLS 256 /* madvise calls in one stop */
#define VECS 512
#define PRESENT (1ULL << 63)

struct area {
	uint64_t start, end, offset, inode, rss, referenced;
	bool shared, dontdump;
};

struct proc {
	pid_t pid;
	struct zns_track *track; /* NULL: it cannot be tracked */
	struct area *area;
	size_t nr, max;
	bool seen;
};

struct call {
	uint64_t at, len;
	int advice;
};

struct calls {
	struct call call[CALLS];
	size_t nr;
};

static struct proc procs[PROCS];
static size_t nr_procs;
static struct zns_track_kernel kernel;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static FILE *open_proc(pid_t pid, const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return fopen(path, "re");
}

/* ---- the tree ---- */

static struct proc *add(pid_t pid)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct proc *p;

	for (size_t i = 0; i < nr_procs; i++)
		if (procs[i].pid == pid)
			return &procs[i];
	if (nr_procs == PROCS) {
		fprintf(stderr, "touched: more than %d processes\n", PROCS);
		exit(1);
	}
	p = &procs[nr_procs++];
	*p = (struct proc){ .pid = pid };
	if (zns_track_new(pid, &kernel, &p->track, &err))
		fprintf(stderr, "touched: writes of %d are not seen: %s\n", pid, err.msg);
	return p;
}

static void find(pid_t pid)
{
	char path[64], name[64];
	struct dirent *e;
	FILE *f;
	DIR *d;
	int child;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	if (!d)
		return;
	add(pid)->seen = true;
	while ((e = readdir(d))) {
		snprintf(name, sizeof(name), "task/%.20s/children", e->d_name);
		f = e->d_name[0] == '.' ? NULL : open_proc(pid, name);
		while (f && fscanf(f, "%d", &child) == 1)
			find(child);
		if (f)
			fclose(f);
	}
	closedir(d);
}

static void find_all(pid_t root)
{
	for (size_t i = 0; i < nr_procs; i++)
		procs[i].seen = false;
	find(root);
	for (size_t i = 0; i < nr_procs; i++)
		if (!procs[i].seen) {
			zns_track_free(procs[i].track);
			free(procs[i].area);
			procs[i--] = procs[--nr_procs];
		}
}

/* ---- areas ---- */

/* Anonymous memory, private or shared; not the stack, which grows into what is below it. */
static bool is_ours(const char *line, struct area *a)
{
	char perm[8], name[128] = "";
	unsigned int major;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%*x %" SCNu64 " %127[^\n]",
		   &a->start, &a->end, perm, &a->offset, &major, &a->inode, name) < 6)
		return false;
	a->shared = perm[3] == 's';
	if (perm[1] != 'w')
		return false;
	if (a->shared)
		return !strncmp(name, "/dev/zero", 9) || !strncmp(name, "/dev/shm", 8) ||
		       !strncmp(name, "/SYSV", 5) || !strncmp(name, "/memfd", 6);
	return !a->inode && strcmp(name, "[stack]") != 0;
}

static void read_areas(struct proc *p)
{
	FILE *f = open_proc(p->pid, "smaps");
	struct area a, *last = NULL;
	char line[512];
	uint64_t kib;

	p->nr = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (line[0] >= '0' && (line[0] <= '9' || line[0] >= 'a') && strchr(line, '-')) {
			a = (struct area){ 0 };
			last = NULL;
			if (!is_ours(line, &a))
				continue;
			if (p->nr == p->max) {
				p->max = p->max ? p->max * 2 : 1024;
				p->area = realloc(p->area, p->max * sizeof(*p->area));
				if (!p->area)
					die("realloc");
			}
			last = &p->area[p->nr++];
			*last = a;
		} else if (last && sscanf(line, "Rss: %" SCNu64, &kib) == 1) {
			last->rss = kib;
		} else if (last && sscanf(line, "Referenced: %" SCNu64, &kib) == 1) {
			last->referenced = kib;
		} else if (last && !strncmp(line, "VmFlags:", 8)) {
			last->dontdump = strstr(line, " dd");
		}
	}
	if (f)
		fclose(f);
}

static bool is_split(const struct area *a)
{
	return a->start / BLOCK == (a->end - 1) / BLOCK;
}

/* ---- answers ---- */

static void say(const struct proc *p, const struct area *a, uint64_t at, const char *flags)
{
	if (a && a->shared)
		printf("s%" PRIu64 ":%" PRIu64 " %s\n", a->inode,
		       (at - a->start + a->offset) / BLOCK, flags);
	else
		printf("p%d:%" PRIu64 " %s\n", p->pid, at / BLOCK, flags);
}

/* A new area of several blocks: every page in it counts as touched. */
static void say_new(const struct proc *p, const struct area *a)
{
	FILE *f = open_proc(p->pid, "pagemap");
	uint64_t page;

	for (uint64_t at = a->start; f && at < a->end; at = (at / BLOCK + 1) * BLOCK)
		for (uint64_t n = at; n < a->end && n / BLOCK == at / BLOCK; n += PAGE)
			if (pread(fileno(f), &page, sizeof(page), (off_t)(n / PAGE * 8)) ==
				    sizeof(page) &&
			    page & PRESENT) {
				say(p, a, at, "rt");
				break;
			}
	if (f)
		fclose(f);
}

static void say_touched(const struct proc *p)
{
	for (size_t i = 0; i < p->nr; i++) {
		const struct area *a = &p->area[i];

		if (!a->rss)
			continue;
		if (!is_split(a))
			say_new(p, a);
		else
			say(p, a, a->start, a->referenced ? "rt" : "r");
	}
}

static void say_written(struct proc *p)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_spans copy = { 0 };
	size_t n = 0;

	if (!p->track || zns_track_arm(p->track, &copy, &err))
		return;
	for (size_t i = 0; i < copy.nr; i++)
		for (uint64_t b = copy.s[i].start / BLOCK; b <= (copy.s[i].end - 1) / BLOCK; b++) {
			while (n < p->nr && p->area[n].end <= b * BLOCK)
				n++;
			if (n < p->nr && p->area[n].start < (b + 1) * BLOCK && !p->area[n].shared)
				say(p, NULL, b * BLOCK, "w");
		}
	zns_spans_free(&copy);
}

/* ---- what makes the next answer possible ---- */

static int advise(struct zns_guest *g, void *arg)
{
	struct calls *c = arg;
	long result;
	int ret = 0;

	for (size_t i = 0; i < c->nr && !ret; i++)
		ret = zns_guest_call(g, SYS_madvise,
				     (uint64_t[6]){ c->call[i].at, c->call[i].len,
						    (uint64_t)c->call[i].advice },
				     &result);
	return ret;
}

static void make_calls(const struct proc *p, struct calls *c)
{
	struct zns_err err = ZNS_ERR_INIT;
	FILE *f = c->nr ? open_proc(p->pid, "maps") : NULL;
	uint64_t stop_ns;

	if (f && zns_inject(p->pid, fileno(f), 5000, advise, c, &stop_ns, &err))
		fprintf(stderr, "touched: blocks of %d stay together: %s\n", p->pid, err.msg);
	if (f)
		fclose(f);
	c->nr = 0;
}

/* Odd blocks get the flag, even ones do not have it; only where there is memory. */
static void split(const struct proc *p)
{
	static struct calls c;

	for (size_t i = 0; i < p->nr; i++) {
		const struct area *a = &p->area[i];

		if (is_split(a) || !a->rss)
			continue;
		for (uint64_t b = a->start / BLOCK; b <= (a->end - 1) / BLOCK; b++) {
			uint64_t from = zns_max(a->start, b * BLOCK);
			uint64_t to = zns_min(a->end, (b + 1) * BLOCK);

			if ((b % 2 == 1) == a->dontdump)
				continue;
			c.call[c.nr++] = (struct call){ from, to - from,
							b % 2 ? MADV_DONTDUMP : MADV_DODUMP };
			if (c.nr == CALLS)
				make_calls(p, &c);
		}
	}
	make_calls(p, &c);
}

static void cool(const struct proc *p)
{
	static struct iovec v[VECS];
	int pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	size_t nr = 0;

	for (size_t i = 0; i <= p->nr && pidfd >= 0; i++) {
		if (nr == VECS || (i == p->nr && nr)) {
			/* stops where the process has unmapped something meanwhile */
			ssize_t done = syscall(SYS_process_madvise, pidfd, v, nr, MADV_COLD, 0);

			if (done < 0)
				for (size_t k = 0; k < nr; k++)
					syscall(SYS_process_madvise, pidfd, &v[k], 1, MADV_COLD, 0);
			nr = 0;
		}
		if (i < p->nr && p->area[i].rss)
			v[nr++] = (struct iovec){ (void *)(uintptr_t)p->area[i].start,
						  p->area[i].end - p->area[i].start };
	}
	if (pidfd >= 0)
		close(pidfd);
}

static void cool_shared(const struct proc *p)
{
	char path[64];
	FILE *f = NULL;

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", p->pid);
	for (size_t i = 0; i < p->nr && !f; i++)
		f = p->area[i].shared ? fopen(path, "we") : NULL;
	if (f) {
		fputs("1", f);
		fclose(f);
	}
}

static void answer(pid_t root)
{
	find_all(root);
	for (size_t i = 0; i < nr_procs; i++) {
		read_areas(&procs[i]);
		say_touched(&procs[i]);
		say_written(&procs[i]);
		split(&procs[i]);
		cool(&procs[i]);
		cool_shared(&procs[i]);
	}
	puts("");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	char line[16];
	pid_t root = argc == 2 ? atoi(argv[1]) : 0;

	if (root <= 0) {
		fprintf(stderr, "usage: touched PID\n");
		return 2;
	}
	if (zns_track_kernel(&kernel, &err)) {
		fprintf(stderr, "touched: %s\n", err.msg);
		return 1;
	}
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "end\n") != 0)
		answer(root);
	for (size_t i = 0; i < nr_procs; i++)
		zns_track_free(procs[i].track);
	return 0;
}
