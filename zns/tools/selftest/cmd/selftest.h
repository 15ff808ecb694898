/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_SELFTEST_H
#define ZNS_SELFTEST_H
/* znsctl-selftest: the acceptance test of a drive, in steps, each of which reports its result. */
#include "../../../ctl/lib/ctl.h"

enum st_result {
	ST_OK,
	ST_FAILED,
	ST_DOUBT, /* software cannot find out */
	ST_NOT_RUN,
	ST_RESULTS
};

struct selftest {
	const struct ctl_cmd *cmd;
	/*
	 * in the form that zns_dev_open() takes; it may contain a serial number, so it is not in
	 * the report
	 */
	const char *spec;
	bool destroy, json, serial;
	struct json_object *checks; /* set with --json */
	unsigned int count[ST_RESULTS];
	char dir[64]; /* a temporary directory for images and keys */
	struct zns_geometry geo;
	uint64_t limit_s; /* s; most time between two lines of the report */
	char backend[16];
	struct zns_drive drive;
	uint32_t zone_write_mibps, zone_read_mibps; /* 0: not measured */
};

/*
 * watch.c: starts to check @limit_s. When the time is over, the report is completed and the process
 * exits. Returns 0 or -errno.
 */
int st_watch(struct selftest *s);
/*
 * Call at the end of a step: the time limit begins anew. Returns with a lock held, which st_said()
 * releases. When the time limit is over, it does not return.
 */
void st_saying(const char *what);
void st_said(void);

/*
 * report.c: prints a line, and adds it to the report. The device's name in the text is replaced by
 * "DEV".
 */
void st_say(struct selftest *s, enum st_result r, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Prints the last line, or the whole report as JSON. Returns the exit code. */
int st_end(struct selftest *s);
/* Removes the temporary directory. */
void st_tidy(const struct selftest *s);

/* geometry.c: checks what the device reports of itself. Only reads. */
void st_geometry(struct selftest *s, struct zns_dev *dev);
/*
 * rates.c: measures the rate of one zone, and whether a flush takes the time that it must. Writes
 * to an empty zone and resets it.
 */
void st_rates(struct selftest *s, struct zns_dev *dev);

/*
 * run.c: runs a program that is installed with this one: "znsctl", "criu". Its output is copied to
 * @out, cut to the size of @out; the last line of standard error to @why. Returns the exit code, or
 * -errno; -ENOENT: it is not installed.
 */
#define ST_WHY 512
void st_run_kill(void); /* kills the program that runs, if any; any thread may call it */
int st_run(const char *program, char *const argv[], char *out, size_t len, char why[ST_WHY]);

/* maps.c: runs znsctl probe to find a map, or to compare the stored one with the device. */
void st_probe(struct selftest *s, bool find);

/*
 * kinds.c: dumps and restores a process with each kind of checkpoint, and compares its memory. The
 * checkpoints are removed.
 */
void st_kinds(struct selftest *s);
/* Runs the checks of dumps on a device that is formatted with encryption, and then without. */
void st_encrypted(struct selftest *s);
bool st_format(struct selftest *s, const char *what, const char *key);

/*
 * subject.c: the process that is dumped, which can check its own memory. Functions return 0 or
 * -errno.
 */
struct subject {
	pid_t pid;
	char answers[96]; /* the file to which it writes its answers */
};
int subject_start(const struct selftest *s, struct subject *p);
int subject_change(struct subject *p); /* changes a part of its memory */
int subject_check(struct subject *p); /* -EBADMSG: its memory has changed */
void subject_end(struct subject *p);

#endif
