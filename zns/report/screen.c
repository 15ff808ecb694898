/* SPDX-License-Identifier: GPL-2.0-only */
/* Shows a state repeatedly, on a terminal in place. */
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include "../ctl/lib/ctl.h"
#include "screen.h"

/* switches off line wrapping: a character may be two columns wide, so lines may exceed the width */
#define BEGIN "\033[?7l\033[H"
#define LINE_END "\033[K\n"
#define END "\033[J\033[?7h"
#define WIPE "\033[2J"

static void size_of(uint32_t *rows, uint32_t *cols)
{
	struct winsize w;

	*rows = 24;
	*cols = 80;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_row > 4 && w.ws_col > 20) {
		*rows = w.ws_row;
		*cols = w.ws_col;
	}
}

/* Returns how many bytes the first @cols characters of a line have. */
static size_t fitting(const char *line, size_t len, uint32_t cols)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		if (((unsigned char)line[i] & 0xc0) != 0x80 && n++ == cols)
			return i;
	return len;
}

static void paint(const char *text, bool first)
{
	uint32_t rows, cols, lines = 0, shown;

	size_of(&rows, &cols);
	for (const char *s = text; *s; s++)
		lines += *s == '\n';
	shown = lines < rows ? lines : rows - 2;
	printf("%s" BEGIN, first ? WIPE : "");
	for (uint32_t i = 0; i < shown; i++) {
		size_t len = strcspn(text, "\n");

		printf("%.*s" LINE_END, (int)fitting(text, len, cols), text);
		text += len + 1;
	}
	if (shown < lines)
		printf("and %u more lines" LINE_END, lines - shown);
	printf(END);
}

static int show(const struct ctl_screen *s, const struct ctl_watched *w, const void *now,
		const void *before, bool live, bool first, struct zns_err *err)
{
	cleanup_free char *text = NULL;
	struct ctl_fold fold;
	size_t len = 0;
	FILE *f;

	if (s->json) {
		ctl_print_json(w->json(now, before));
		return 0;
	}
	f = open_memstream(&text, &len);
	if (!f)
		return zns_fail(err, -ENOMEM, "no memory for the screen");
	w->text(f, now, before);
	if (fclose(f))
		return zns_fail(err, -ENOMEM, "no memory for the screen");
	if (live) {
		paint(text, first);
		return 0;
	}
	ctl_fold_begin(&fold);
	printf("%s%s", first ? "" : "\n", text);
	ctl_fold_end(&fold, 4);
	return 0;
}

static void nap(uint64_t s)
{
	struct timespec t = { .tv_sec = (time_t)s };

	while (nanosleep(&t, &t))
		;
}

int ctl_watch(const struct ctl_screen *s, const struct ctl_watched *w, void *arg,
	      struct zns_err *err)
{
	bool once = s->once || s->json, live = !once && isatty(STDOUT_FILENO), first = true;
	void *before = calloc(1, w->size), *now = calloc(1, w->size), *next;
	int ret = before && now ? w->take(before, arg, err) :
				  zns_fail(err, -ENOMEM, "no memory for the screen");

	while (!ret) {
		nap(s->interval_s);
		ret = w->take(now, arg, err);
		if (ret) {
			w->drop(before);
			break;
		}
		ret = show(s, w, now, before, live, first, err);
		w->drop(before);
		first = false;
		next = before;
		before = now;
		now = next;
		if (ret || once || fflush(stdout)) {
			w->drop(before);
			break;
		}
	}
	free(before);
	free(now);
	return ret;
}
