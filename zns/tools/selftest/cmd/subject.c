/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process for dumps: each word of its memory depends on its place, and the process checks its
 * memory on request.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "selftest.h"

#define LENGTH MIB(16)
#define WORDS (LENGTH / sizeof(uint64_t))
#define PATIENCE_MS 20000
/* s; it exits after this time, since the program that started it may have been killed */
#define LIFE_S 300
#define STEP_US 2000

static uint64_t word_of(uint64_t i, uint64_t turn)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + turn;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 31);
}

/* In each turn every 16th page is changed: returns the last turn that has changed word @i. */
static uint64_t turn_of(uint64_t i, uint64_t turn)
{
	return i / 512 % 16 ? 0 : turn;
}

static void answer(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, word, strlen(word)) < 0)
		_exit(1);
	close(fd);
}

static _Noreturn void live(const char *answers)
{
	uint64_t *mem = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	uint64_t turn = 0;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_SETMASK, &set, NULL);
	if (mem == MAP_FAILED)
		_exit(1);
	for (uint64_t i = 0; i < WORDS; i++)
		mem[i] = word_of(i, 0);
	answer(answers, "ready");
	for (;;) {
		bool same = true;
		int sig = sigtimedwait(&set, NULL, &(struct timespec){ .tv_sec = LIFE_S });

		if (sig < 0 && errno == EINTR) /* happens after a restore */
			continue;
		if (sig < 0)
			_exit(1);
		if (sig == SIGUSR2)
			turn++;
		for (uint64_t i = 0; i < WORDS; i++)
			if (sig == SIGUSR2 && turn_of(i, turn))
				mem[i] = word_of(i, turn);
			else
				same &= mem[i] == word_of(i, turn_of(i, turn));
		answer(answers, same ? "same" : "other");
	}
}

/* Waits for its answer. 0: it is @want. */
static int await(struct subject *p, const char *want)
{
	for (int ms = 0; ms < PATIENCE_MS; ms += STEP_US / 1000) {
		char text[16] = "";
		int fd = open(p->answers, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

		if (fd >= 0)
			close(fd);
		if (n > 0) {
			unlink(p->answers);
			return strcmp(text, want) ? -EBADMSG : 0;
		}
		usleep(STEP_US);
	}
	return -ETIMEDOUT;
}

int subject_start(const struct selftest *s, struct subject *p)
{
	snprintf(p->answers, sizeof(p->answers), "%s/answer", s->dir);
	unlink(p->answers);
	fflush(NULL);
	p->pid = fork();
	if (p->pid < 0)
		return -errno;
	if (!p->pid) {
		int null = open("/dev/null", O_RDWR);

		/* criu can dump a process with a session of its own and no terminal */
		setsid();
		for (int fd = 0; fd < 3; fd++)
			dup2(null, fd);
		close_range(3, ~0u, 0);
		if (chdir("/"))
			_exit(1);
		live(p->answers);
	}
	return await(p, "ready");
}

int subject_change(struct subject *p)
{
	return kill(p->pid, SIGUSR2) ? -errno : await(p, "same");
}

int subject_check(struct subject *p)
{
	return kill(p->pid, SIGUSR1) ? -errno : await(p, "same");
}

/* Also after a restore the process is our child, so it can be reaped: see kinds.c. */
void subject_end(struct subject *p)
{
	if (p->pid <= 0)
		return;
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	p->pid = 0;
}
