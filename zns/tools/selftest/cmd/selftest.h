/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_SELFTEST_H
#define ZNS_SELFTEST_H
/* znsctl-selftest: the acceptance test of a drive, in steps, each of which reports its result. */
#include "../../../ctl/lib/ctl.h"

enum st_result {
	ST_OK,
	ST_FAILED,
	ST_DOUBT, /* software cannot tell */
	ST_NOT_RUN,
	ST_RESULTS
};

struct selftest {
	const struct ctl_cmd *cmd;
	/*
	 * in the form that zns_dev_open takes; it may contain a serial number, and is not reported
	 */
	const char *spec;
	bool destroy, json, serial;
	struct json_object *checks; /* with --json */
	unsigned int count[ST_RESULTS];
	char dir[64]; /* a directory of our own, for images and keys */
	struct zns_geometry geo;
	uint64_t limit_s; /* seconds between two lines of the report, at most */
	char backend[16];
	struct zns_drive drive;
	uint32_t zone_write_mibps, zone_read_mibps; /* 0: not measured */
};

/* watch.c: from here on @limit_s holds. When it is over, the report is ended and the process
 * exits. 0 or -errno. */
int st_watch(struct selftest *s);
/* A step has ended: the time limit begins anew. Returns with the lock held, which st_said()
 * releases; after the time limit it does not return. */
void st_saying(const char *what);
void st_said(void);

/* report.c: one line now, and an entry of the report. Where the text names the device it says
 * "DEV". */
void st_say(struct selftest *s, enum st_result r, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The last line, or the whole as JSON. Returns the exit code. */
int st_end(struct selftest *s);
/* The directory is removed. */
void st_tidy(const struct selftest *s);

/* geometry.c: what the device reports of itself. Only reads. */
void st_geometry(struct selftest *s, struct zns_dev *dev);
/* rates.c: of one zone, and whether a flush takes the time that it must. Writes to an empty zone
 * and resets it. */
void st_rates(struct selftest *s, struct zns_dev *dev);

/* run.c: runs a program that is installed with this one: "znsctl", "criu". Its output is copied to
 * @out, cut to its size; the last line of standard error to @why. Returns the exit code, or -errno;
 * -ENOENT: not installed. */
#define ST_WHY 512
void st_run_kill(void); /* kills the running program, if there is one; any thread */
int st_run(const char *program, char *const argv[], char *out, size_t len, char why[ST_WHY]);

/* maps.c: runs znsctl probe, or compares the stored map with the device. */
void st_probe(struct selftest *s, bool find);

/* kinds.c: a dump and a restore of each kind, by criu, with the memory of the process compared. The
 * checkpoints are removed. */
void st_kinds(struct selftest *s);
/* The checks of dumps on a device that is formatted anew with encryption, and then without. */
void st_encrypted(struct selftest *s);
bool st_format(struct selftest *s, const char *what, const char *key);

/* subject.c: the process that is dumped, with memory that it can compare. 0 or -errno. */
struct subject {
	pid_t pid;
	char answers[96]; /* the file that it answers in */
};
int subject_start(const struct selftest *s, struct subject *p);
int subject_change(struct subject *p); /* a part of its memory */
int subject_check(struct subject *p); /* -EBADMSG: its memory has changed */
void subject_end(struct subject *p);

#endif
