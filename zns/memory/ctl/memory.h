/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_MEMORY_H
#define ZNS_CTL_MEMORY_H
/* `znsctl memory`: what its files share. */
#include "../../ctl/lib/ctl.h"
#include "zns-memory.pb-c.h"

/* memory_call.c: the socket of a pager is $ZNS_RUN/memory/NAME.sock */
#define MEMORY_DIR "memory"
/*
 * Sends a request to the pager of context @name. -ENOENT: there is no such context. If the pager
 * reports an error, @err has its text. @out may be NULL.
 */
int memory_call(const char *name, const ZnsPb__MemoryRequest *q, ZnsPb__MemoryAnswer **out,
		struct zns_err *err);
/* The names of all contexts, sorted. Free them with memory_names_free(). */
int memory_names(char ***out, size_t *nr, struct zns_err *err);
void memory_names_free(char **names, size_t nr);
/* Finds a context. @what: its name, or the PID of one of its processes. */
int memory_find(const char *what, char *name, size_t len, struct zns_err *err);
/* Gets the status of a context. Free *out by the function of its type. */
int memory_status(const char *name, ZnsPb__MemoryAnswer **out, struct zns_err *err);

/* memory_attach.c */
#define MEMORY_NAME 256
struct memory_wish {
	const char *what; /* a PID or container */
	/* as given on the command line; dram NULL: the present size plus a reserve */
	const char *dram, *name, *dev;
	uint64_t idle_s; /* s; hibernate after this long without activity; 0: never */
	uint32_t qos_mibps; /* MiB/s, limit for its writes; 0: none */
	bool no_predict, encrypt;
	uint64_t min; /* bytes, for --dram auto; 0: not given */
};
/* Starts the pager. @name receives the name of the new context. */
int memory_attach(const struct memory_wish *w, char *name, size_t len, struct zns_err *err);
int memory_cmd_attach(const struct ctl_cmd *cmd, int argc, char **argv);
/* Parses --dram. A percentage refers to the memory of process @pid, and is refused if @pid is 0. */
int memory_parse_dram(const char *text, pid_t pid, uint64_t *dram, struct zns_err *err);

/*
 * memory_notes.c: lists containers that should have a pager but run without one. Adds them to
 * @list, or prints them if @list is NULL.
 */
void memory_notes(struct json_object *list);

/* memory_hibernate.c */
int memory_cmd_hibernate(const struct ctl_cmd *cmd, int argc, char **argv);
int memory_cmd_wake(const struct ctl_cmd *cmd, int argc, char **argv);

/*
 * memory_kernel.c: what this kernel and its settings allow. Each feature is tried, since version
 * numbers say little.
 */
struct memory_lack {
	/* instead: the substitute that is used; NULL: there is none, and nothing can be attached */
	const char *what, *why, *instead;
};
struct memory_kernel {
	const char *mechanism; /* how pages are removed from a process: "ptrace" or "none" */
	const char *lost; /* what happens when a unit cannot be read: "poison" or "kill" */
	char missing[256]; /* the first missing feature that has no substitute; empty: none */
	/* the first missing feature that has a substitute, and its substitute; empty: none */
	char note[256];
	/* all that is missing; memory_kernel() tries at most this many features */
	struct memory_lack lacks[10];
	unsigned nr_lacks;
};
void memory_kernel(struct memory_kernel *k);

/* memory_print.c */
struct json_object *memory_json(const ZnsPb__MemoryStatus *s);
void memory_print(const ZnsPb__MemoryStatus *s, bool verbose);
int memory_show(const struct ctl_cmd *cmd, const char *name, bool json); /* the exit code */
/* The state, and how long the context has been in it unless it is "active". */
const char *memory_state_text(const ZnsPb__MemoryStatus *s, char *buf, size_t len);

/* memory_look.c: the status of all contexts at one moment */
#define MEMORY_UNIT UINT64_C(65536)
struct memory_look {
	ZnsPb__MemoryAnswer **a;
	size_t nr, max;
	uint64_t ns;
};
/*
 * Reads the status of all contexts. A context that ends meanwhile, or whose pager has just died, is
 * left out.
 */
int memory_look_take(struct memory_look *l, struct zns_err *err);
void memory_look_free(struct memory_look *l);
/* Numbers of units read from the device, and written to it. */
uint64_t memory_units_read(const ZnsPb__MemoryStatus *s);
uint64_t memory_units_written(const ZnsPb__MemoryStatus *s);

/* memory_top.c: changes between two states, with the busiest context first */
void memory_top_text(FILE *f, const struct memory_look *now, const struct memory_look *before);
struct json_object *memory_top_json(const struct memory_look *now,
				    const struct memory_look *before);
/* Memory pressure of the machine: as text "; memory pressure …", or as JSON (NULL: unknown). */
void memory_pressure_text(FILE *f);
struct json_object *memory_pressure_json(void);

/* cmd_memory.c: the command of znsctl-memory */
extern const struct ctl_cmd memory_cmd_memory;

#endif
