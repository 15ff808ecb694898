/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes checkpoints of each kind of a process of our own, restores them, and compares its memory.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest.h"

#define ARGS 32

enum { PLAIN, CHAIN, LIVE };

struct words {
	char *v[ARGS];
	unsigned int nr;
};

/* A container name for the checkpoints that nobody else uses. */
static const char *name_of(const struct selftest *s)
{
	return strrchr(s->dir, '/') + 1;
}

static void add(struct words *w, const char *word)
{
	if (w->nr + 1 < ARGS)
		w->v[w->nr++] = (char *)word;
	w->v[w->nr] = NULL;
}

/* Finds the reason of a failure in criu's log. */
static void why_of_log(const char *images, const char *log, char why[ST_WHY])
{
	char path[160], line[1024];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", images, log);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, "Error")) {
			/* the text behind the position in the source */
			const char *text = strstr(line, "): ");

			line[strcspn(line, "\n")] = '\0';
			snprintf(why, ST_WHY, "%.*s", ST_WHY - 1, text ? text + 3 : line);
		}
	if (f)
		fclose(f);
}

static int criu(const struct selftest *s, const char *verb, const char *images, pid_t pid,
		const char *const more[], char why[ST_WHY])
{
	struct words w = { .nr = 0 };
	char out[4096], number[16];
	int code;

	for (const char *const *p =
		     (const char *const[]){ "criu", verb, "--no-default-config", "-D", images, "-o",
					    "log", "--manage-cgroups=ignore", NULL };
	     *p; p++)
		add(&w, *p);
	if (pid) {
		snprintf(number, sizeof(number), "%d", pid);
		for (const char *const *p =
			     (const char *const[]){ "-t", number, "--zns-dev", s->spec,
						    "--zns-container", name_of(s), NULL };
		     *p; p++)
			add(&w, *p);
	} else {
		add(&w, "-d");
	}
	for (; more && *more; more++)
		add(&w, *more);
	code = st_run("criu", w.v, out, sizeof(out), why);
	if (code > 0)
		why_of_log(images, "log", why);
	return code;
}

/* Returns "", or why this kind cannot be tested here. */
static const char *impossible(int kind)
{
	char *argv[] = { (char *)"criu", (char *)"check", (char *)"--feature",
			 (char *)"mem_dirty_track", NULL };
	char out[4096], why[ST_WHY];
	struct utsname u;
	int a = 0, b = 0;

	uname(&u);
	sscanf(u.release, "%d.%d", &a, &b);
	if (kind == PLAIN || a > 6 || (a == 6 && b >= 7))
		return "";
	if (kind == LIVE)
		return "live dumps want Linux 6.7";
	return st_run("criu", argv, out, sizeof(out), why) ?
		       "the kernel does not track which pages are written" :
		       "";
}

static const char *directory(const struct selftest *s, const char *name, char *out, size_t len)
{
	snprintf(out, len, "%s/%s", s->dir, name);
	mkdir(out, 0700);
	return out;
}

static int dump(struct selftest *s, int kind, const char *what, struct subject *p, char *images,
		size_t len, char why[ST_WHY])
{
	static const char *const track[] = { "--track-mem", NULL },
				 *const parent[] = { "--track-mem", "--prev-images-dir",
						     "../before", NULL },
				 *const live[] = { "--zns-live", NULL };
	char before[128];
	int code;

	if (kind == CHAIN) {
		directory(s, "before", before, sizeof(before));
		code = criu(s, "pre-dump", before, p->pid, track, why);
		if (code)
			return code;
		if (subject_change(p)) {
			snprintf(why, ST_WHY, "after a pre-dump its memory is not what it was");
			return 1;
		}
	}
	directory(s, what, images, len);
	return criu(s, "dump", images, p->pid,
		    kind == CHAIN ? parent :
		    kind == LIVE  ? live :
				    NULL,
		    why);
}

static void remove_all(struct selftest *s)
{
	char *argv[] = { (char *)"znsctl",
			 (char *)"rm",
			 (char *)"--container",
			 (char *)name_of(s),
			 (char *)"--dev",
			 (char *)s->spec,
			 NULL };
	char out[4096], why[ST_WHY];

	st_run("znsctl", argv, out, sizeof(out), why);
}

static void one(struct selftest *s, int kind, const char *what)
{
	char title[64], images[128], why[ST_WHY] = "";
	struct subject p = { 0 };
	int ret;

	prctl(PR_SET_CHILD_SUBREAPER, 1); /* makes the restored process our child */
	ret = subject_start(s, &p);
	snprintf(title, sizeof(title), "dump and restore, %s", what);
	if (ret)
		snprintf(why, sizeof(why), "the process to be dumped does not start: %s",
			 strerror(-ret));
	if (!ret)
		ret = dump(s, kind, what, &p, images, sizeof(images), why);
	if (ret == -ENOENT) {
		st_say(s, ST_NOT_RUN, title, "%s", why);
		subject_end(&p);
		return;
	}
	if (!ret) {
		waitpid(p.pid, NULL, 0); /* reap it, since its PID must be free */
		unlink(p.answers);
		ret = criu(s, "restore", images, 0, NULL, why);
	}
	if (!ret) {
		ret = subject_check(&p);
		if (ret)
			snprintf(why, sizeof(why), "%s",
				 ret == -EBADMSG ? "its memory is not what it was" :
						   "the restored process does not answer");
	}
	subject_end(&p);
	remove_all(s);
	st_say(s, ret ? ST_FAILED : ST_OK, title, "%s",
	       ret ? why : "16 MiB of memory are what they were");
}

void st_kinds(struct selftest *s)
{
	static const char *const name[] = { "plain", "chain", "live" };

	for (int kind = PLAIN; kind <= LIVE; kind++) {
		const char *no = impossible(kind);
		char title[64];

		snprintf(title, sizeof(title), "dump and restore, %s", name[kind]);
		if (*no)
			st_say(s, ST_NOT_RUN, title, "%s", no);
		else
			one(s, kind, name[kind]);
	}
}

bool st_format(struct selftest *s, const char *what, const char *key)
{
	char *argv[] = { (char *)"znsctl",
			 (char *)"format",
			 (char *)s->spec,
			 (char *)"--force",
			 key ? (char *)"--encrypt" : NULL,
			 (char *)key,
			 NULL };
	char out[4096], why[ST_WHY];

	if (!st_run("znsctl", argv, out, sizeof(out), why))
		return true;
	st_say(s, ST_FAILED, what, "%s", why);
	return false;
}

void st_encrypted(struct selftest *s)
{
	char path[96], key[112];
	uint8_t secret[32];
	int fd;

	snprintf(path, sizeof(path), "%s/key", s->dir);
	snprintf(key, sizeof(key), "file:%s", path);
	fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, secret, sizeof(secret)) != sizeof(secret) ||
	    zns_replace_file(AT_FDCWD, path, secret, sizeof(secret), 0600)) {
		st_say(s, ST_FAILED, "dump and restore, encrypted", "a key cannot be made");
	} else if (st_format(s, "format with encryption", key)) {
		one(s, PLAIN, "encrypted");
	}
	if (fd >= 0)
		close(fd);
}
