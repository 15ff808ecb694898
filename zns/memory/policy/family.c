/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds out which processes belong to the context. For a forked child the kernel gives us a
 * userfaultfd but no PID. So we try the children of the processes that we know: a page that is
 * protected through the userfaultfd shows as protected in /proc/PID/pagemap. A process that has
 * executed a program has lost our userfaultfd, and is attached again.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

#include "../../track/threads.h"
#include "birth.h"
#include "family.h"
#include "hiber.h"

#define PIDS_MAX 1024U
#define KCMP_SAME_VM 1
#define PAGES_TRIED 4096U
/* ms for a child of vfork() to execute its program; a check does not wait for long */
#define VFORK_MS 10U
#define FULL "a context has at most %u processes"

struct pids {
	pid_t pid[PIDS_MAX];
	unsigned int nr;
};

static bool has(const struct pids *l, pid_t pid)
{
	for (unsigned int i = 0; i < l->nr; i++)
		if (l->pid[i] == pid)
			return true;
	return false;
}

static void children_of(pid_t pid, struct pids *l)
{
	char path[64];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		cleanup_free uint8_t *text = NULL;
		char name[300], *p, *end;
		size_t len;

		snprintf(name, sizeof(name), "%s/children", d->d_name);
		if (d->d_name[0] == '.' || zns_read_file(dirfd(dir), name, 1 << 20, &text, &len))
			continue;
		for (p = (char *)text;; p = end) {
			long child = strtol(p, &end, 10);

			if (end == p)
				break;
			if (l->nr < PIDS_MAX && !has(l, (pid_t)child))
				l->pid[l->nr++] = (pid_t)child;
		}
	}
	if (dir)
		closedir(dir);
}

static bool known(struct proc *const *list, unsigned int nr, pid_t pid)
{
	for (unsigned int i = 0; i < nr; i++)
		if (list[i]->pid == pid)
			return true;
	return false;
}

static uint64_t entry_of(const struct proc *p, uint64_t addr)
{
	uint64_t e = 0;

	return present_entries(p->pagemap, addr, 1, &e) ? 0 : e;
}

/*
 * Does the userfaultfd of @child protect this page of process @as? 1, 0; -errno: this page cannot
 * be tried.
 */
static int try_page(struct proc *child, const struct proc *as, uint64_t addr)
{
	int ret;

	/*
	 * this page is not suitable: if it is protected already, or on a zone, a thread may wait
	 * for it, and it must keep its protection
	 */
	if ((entry_of(as, addr) & (PRESENT | PROTECTED)) != PRESENT || unit_at(child, addr)->word)
		return -ENOENT;
	ret = mem_uffd_protect(child->uffd, addr, addr + PAGE, true);
	if (ret)
		return ret;
	ret = (entry_of(as, addr) & PROTECTED) != 0;
	mem_uffd_protect(child->uffd, addr, addr + PAGE, false);
	/* not if another process has protected its own page at the same moment */
	return ret && !(entry_of(as, addr) & PROTECTED);
}

/*
 * For a doomed child: tests a missing page instead. It poisons the page, which shows as a marker in
 * /proc/PID/pagemap. Poison does no harm: the bytes of the page are lost, so a thread that reads it
 * must get a signal anyway.
 */
static int try_missing(struct proc *child, const struct proc *as, uint64_t addr)
{
	uint64_t e = entry_of(as, addr);
	int ret = e && (e & MARKER) != MARKER ? -ENOENT : 0;

	if (!ret) /* remove the protection marker first: a page with a marker cannot be poisoned */
		ret = mem_uffd_protect(child->uffd, addr, addr + PAGE, false);
	if (!ret)
		ret = mem_uffd_poison(child->uffd, addr, addr + PAGE);
	/*
	 * another process may have touched its own page at the same moment; then the page is
	 * present
	 */
	return ret ? ret : (entry_of(as, addr) & (PRESENT | MARKER)) == SWAPPED;
}

struct trial {
	const struct proc *as;
	uint8_t *buf;
	unsigned int left;
	int found; /* the result of try_page() */
};

static int try_unit(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct trial *t = arg;
	uint32_t mask = u->pages & 0xffff;

	if ((STATE(u->word) != U_ZONE && STATE(u->word) != U_CLEAN) || !mask || u->addr)
		return 0;
	if (unit_unkeep(p, u, U_BUSY))
		unit_release(p, u, base);
	unit_load(p, u, base, t->buf, false, NULL);
	t->found = try_page(p, t->as, base + (uint64_t)__builtin_ctz(mask) * PAGE);
	return t->found >= 0 || !t->left-- ? 1 : 0;
}

/* Is the process @as this child? Only the PID and the files of @as are used. */
static bool is_same(struct proc *child, struct proc *as)
{
	struct places l = { 0 };
	cleanup_free uint8_t *buf = aligned_alloc(PAGE, UNIT);
	struct trial t = { .as = as, .buf = buf, .left = 64, .found = -ENOENT };

	if (!buf || mem_places_read(as, &l))
		return false;
	for (size_t i = 0; i < l.nr && t.found < 0; i++) {
		uint64_t end = zns_min(l.a[i].end, l.a[i].start + PAGES_TRIED * PAGE);

		for (uint64_t a = l.a[i].start; a < end && t.found < 0; a += PAGE)
			t.found = try_page(child, as, a);
		for (uint64_t a = l.a[i].start; a < end && t.found < 0 && child->sh->doomed;
		     a += PAGE)
			t.found = try_missing(child, as, a);
	}
	mem_places_free(&l);
	if (t.found < 0)
		table_each(child, try_unit, &t);
	return t.found > 0;
}

/* Kills a doomed child, which would wait for ever for memory that nobody can find. */
static void end_doomed(struct proc *child, const struct proc *as)
{
	mem_warn(child->m, "process %d is killed: where its memory is on zones is not known",
		 as->pid);
	syscall(SYS_pidfd_send_signal, as->pidfd, SIGKILL, NULL, 0);
	proc_forget(child);
}

/*
 * Gives the child without a PID the PID and files of @as. Kills it if the reader of events has
 * doomed it meanwhile (end_unsure()).
 */
static void christen(struct proc *child, struct proc *as)
{
	bool doomed;

	fork_prune(child, as);
	pthread_rwlock_wrlock(&child->ev);
	doomed = child->sh->doomed;
	if (!doomed) {
		child->pidfd = as->pidfd;
		child->maps = as->maps;
		child->pagemap = as->pagemap;
		child->mem = as->mem;
		child->pid = as->pid;
		child->sh->pid = as->pid;
		as->pidfd = as->maps = as->pagemap = as->mem = -1;
	}
	pthread_rwlock_unlock(&child->ev);
	if (doomed) {
		end_doomed(child, as);
		return;
	}
	child->evicts = true;
	proc_why(child, "%s", "");
	changed(child->m);
}

/*
 * Lists the children without a PID, one of which may be process @pid. A process is visible only
 * after the event of its fork was read, and the reader holds `ev` from then until the child is in
 * the list. So taking the locks below waits for that. Returns false if @pid is known already.
 */
static bool nameless(struct zns_mem *m, pid_t pid, struct proc *list[PROCS_MAX], unsigned int *nr)
{
	struct proc *all[PROCS_MAX];
	unsigned int n;
	bool is_known;

	procs(m, all, &n);
	for (unsigned int i = 0; i < n; i++) {
		pthread_rwlock_rdlock(&all[i]->ev);
		pthread_rwlock_unlock(&all[i]->ev);
		proc_put(all[i]);
	}
	procs(m, all, &n);
	is_known = known(all, n, pid);
	*nr = 0;
	for (unsigned int i = 0; i < n; i++)
		if (!all[i]->pid && !all[i]->gone && !mem_without(RULE_ONCE))
			list[(*nr)++] = all[i];
		else
			proc_put(all[i]);
	return !is_known;
}

static void close_files(const struct proc *as)
{
	const int fd[] = { as->pidfd, as->maps, as->pagemap, as->mem };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(fd); i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

static void newcomer(struct zns_mem *m, pid_t parent, pid_t pid, unsigned int limit_ms)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct proc as = { .m = m, .pid = pid, .pidfd = -1, .maps = -1, .pagemap = -1, .mem = -1 };
	struct proc *list[PROCS_MAX];
	unsigned int nr = 0;
	bool found = false;

	/* a child of vfork() or posix_spawn() that still uses its parent's memory */
	if (!syscall(SYS_kcmp, parent, pid, KCMP_SAME_VM, 0, 0))
		return;
	if (!proc_open(&as, &err) && nameless(m, pid, list, &nr)) {
		for (unsigned int i = 0; i < nr && !found; i++) {
			/* nothing is evicted from a leaving child, so its PID is not needed */
			if ((list[i]->leaves && !list[i]->sh->doomed) || !is_same(list[i], &as))
				continue;
			if (list[i]->sh->doomed)
				end_doomed(list[i], &as);
			else
				christen(list[i], &as);
			found = true;
		}
		/*
		 * the test fails on a page that moves or changes, so the process may still be one
		 * of them: try again later
		 */
		found |= (nr || leave_waiting(m)) && mem_places_watched(&as);
		if (!found && !m->sealed &&
		    (threads_alone(pid, limit_ms, &err) || family_join(m, pid, &err)) &&
		    err.code != -ESRCH)
			mem_warn(m, "not extended: %s", err.msg);
	}
	for (unsigned int i = 0; i < nr; i++)
		proc_put(list[i]);
	close_files(&as);
}

int family_join(struct zns_mem *m, pid_t pid, struct zns_err *err)
{
	struct proc *p = proc_new(m, pid, err);
	struct places l = { 0 };
	const char *pinned;
	int ret = p ? proc_open(p, err) : -ENOMEM;

	if (!ret && !proc_place(m)) /* check this before the process is stopped */
		ret = zns_fail(err, -ENOSPC, FULL, PLACES_MAX);
	if (!ret && mem_places_read(p, &l))
		ret = zns_fail(err, -ESRCH, "process %d is gone, or has no memory", pid);
	pinned = ret ? NULL : mem_places_pinned(p, &l);
	mem_places_free(&l);
	if (pinned)
		ret = zns_fail(
			err, -EBUSY,
			"process %d is refused: %s, to which the kernel or a device may write", pid,
			pinned);
	if (!ret)
		ret = proc_equip(p, err);
	if (!ret && proc_add(m, p))
		ret = zns_fail(err, -ENOSPC, FULL, PLACES_MAX);
	if (ret) {
		if (p)
			proc_put(p);
		return ret;
	}
	p->evicts = true;
	reader_watch(m, p);
	changed(m);
	return 0;
}

void family_tree(struct zns_mem *m, pid_t root)
{
	struct pids l = { .pid = { root }, .nr = 1 };

	for (unsigned int i = 0; i < l.nr; i++) {
		unsigned int nr = l.nr;

		for (children_of(l.pid[i], &l); nr < l.nr; nr++)
			newcomer(m, l.pid[i], l.pid[nr], VFORK_MS);
	}
}

/* Has the process exited, or executed another program? */
static void check(struct zns_mem *m, struct proc *p)
{
	struct zns_err err = ZNS_ERR_INIT;
	pid_t pid = p->pid;

	if (!mem_uffd_dead(p->uffd)) {
		if (p->rest && !evict_rest(p, 0)) {
			p->evicts = true;
			proc_why(p, "%s", "");
		}
		if (!p->evicts && !p->rest && p->again_ns && zns_mono_ns() >= p->again_ns) {
			p->again_ns = 0;
			p->evicts = true;
			proc_why(p, "%s", "");
		}
		if (!p->pid || same_memory(p))
			return;
		/*
		 * another process uses this memory too; the memory is served until that process
		 * exits
		 */
		p->evicts = false;
		proc_why(p, "its first process is gone; others use its memory");
		if (!mem_without(RULE_HEIRS))
			return;
	}
	if (m->sealed)
		return; /* try again after the checkpoint */
	proc_forget(p);
	if (!pid || proc_ended(p) || m->no_evict)
		return;
	if (family_join(m, pid, &err) && err.code != -ESRCH)
		mem_warn(m, "process %d has executed a program and is not attached any more: %s",
			 pid, err.msg);
}

/*
 * Reads the events of a doomed child, so that it does not wait for us. Only forks matter: its
 * children are doomed as well.
 */
static void listen_to_doomed(struct proc *p)
{
	struct uffd_msg msg;

	while (read(p->uffd, &msg, sizeof(msg)) == sizeof(msg))
		if (msg.event == UFFD_EVENT_FORK)
			birth_doom(p->m, birth_begin(p->m, (int)msg.arg.fork.ufd),
				   (int)msg.arg.fork.ufd);
}

static void try_doomed(struct zns_mem *m, struct proc *const *list, unsigned int nr, pid_t pid)
{
	struct proc as = { .m = m, .pid = pid, .pidfd = -1, .maps = -1, .pagemap = -1, .mem = -1 };

	if (!proc_open(&as, NULL) && mem_places_watched(&as))
		for (unsigned int i = 0; i < nr; i++)
			if (list[i]->sh->doomed && !list[i]->gone && is_same(list[i], &as)) {
				end_doomed(list[i], &as);
				break;
			}
	close_files(&as);
}

/*
 * Tries all processes of the machine, since the parent of a doomed child may have left the context
 * or exited.
 */
static void look_for_doomed(struct zns_mem *m, struct proc *const *list, unsigned int nr)
{
	unsigned int doomed = 0;
	struct dirent *d;
	DIR *dir;

	for (unsigned int i = 0; i < nr; i++)
		if (list[i]->sh->doomed && !list[i]->gone) {
			listen_to_doomed(list[i]);
			doomed++;
		}
	dir = doomed ? opendir("/proc") : NULL;
	while (dir && (d = readdir(dir))) {
		pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);

		if (pid > 0 && !known(list, nr, pid))
			try_doomed(m, list, nr, pid);
	}
	if (dir)
		closedir(dir);
}

void family_look(struct zns_mem *m)
{
	struct proc *list[PROCS_MAX];
	unsigned int nr;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++)
		check(m, list[i]);
	for (unsigned int i = 0; i < nr; i++) {
		struct pids l = { .nr = 0 };

		if (list[i]->pid && !list[i]->gone)
			children_of(list[i]->pid, &l);
		for (unsigned int k = 0; k < l.nr; k++)
			if (!known(list, nr, l.pid[k]))
				newcomer(m, list[i]->pid, l.pid[k], 0);
	}
	look_for_doomed(m, list, nr);
	for (unsigned int i = 0; i < nr; i++)
		proc_put(list[i]);
}
