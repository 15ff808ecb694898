/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Faults on purpose, by call or by ZNS_EMU_FAULT: see controls.h. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control.h"

/* Wear belongs to the device and survives a power cut, unlike written data. So only the flags go
 * to the disk. */
static int set_flags_locked(struct emu *e, uint32_t zone, uint32_t flags, struct zns_err *err)
{
	struct emu_entry *live = &e->live[zone];
	struct emu_change ch = { .zone = zone };
	int rc = emu_durable_lock(e, err);

	if (rc)
		return rc;
	emu_store(&live->flags, (live->flags & EMU_F_FINISHED) | flags);
	emu_store(&live->state, emu_load(&live->wp) ? ZNS_ZONE_CLOSED : ZNS_ZONE_EMPTY);
	ch.to = e->mirror[zone];
	ch.to.flags = (ch.to.flags & EMU_F_FINISHED) | flags;
	rc = emu_durable_commit(e, &ch, 1, err);
	emu_durable_unlock(e);
	return rc;
}

/* ---- counting ---- */

/* Decrements a counter unless it is 0 or endless. Returns false only if it was 0. */
static bool take(_Atomic uint64_t *n)
{
	uint64_t v = atomic_load(n);

	while (v && v != UINT64_MAX)
		if (atomic_compare_exchange_weak(n, &v, v - 1))
			break;
	return v;
}

static bool hits(struct emu_rule *r, uint32_t zone)
{
	if (r->zone != ZNS_EMU_ANY_ZONE && r->zone != zone)
		return false;
	return !take(&r->left) && take(&r->times);
}

static bool counts_reads(const struct emu_rule *r)
{
	return r->kind == ZNS_EMU_FAIL_READ || r->kind == ZNS_EMU_STOP_READ;
}

static bool repeats(enum zns_emu_fault_kind kind)
{
	return kind == ZNS_EMU_FAIL_WRITE || kind == ZNS_EMU_FAIL_READ || kind == ZNS_EMU_CONFLICT;
}

static int strike(struct emu *e, const struct emu_rule *r, bool write, uint32_t zone, uint64_t off,
		  struct zns_err *err)
{
	bool offline = r->kind == ZNS_EMU_WEAR_OFFLINE;
	int rc;

	if (r->kind == ZNS_EMU_FAIL_WRITE || r->kind == ZNS_EMU_FAIL_READ)
		return zns_fail(err, -EIO, "%s zone %u at offset %llu: media error (injected)",
				write ? "write to" : "read of", zone, (unsigned long long)off);
	if (r->kind == ZNS_EMU_CONFLICT)
		return zns_fail(err, -EBADE, "zone %u: another host has reserved %s (injected)",
				zone, e->dev.path);
	if (r->kind == ZNS_EMU_STOP || r->kind == ZNS_EMU_STOP_READ)
		return kill(getpid(), SIGSTOP) ? -errno : 0;
	rc = set_flags_locked(e, zone, offline ? EMU_F_OFFLINE : EMU_F_READ_ONLY, err);
	return rc ? rc :
		    emu_zone_refuses(zone, offline ? ZNS_ZONE_OFFLINE : ZNS_ZONE_READ_ONLY, err);
}

int emu_fault_before(struct emu *e, bool write, uint32_t zone, uint64_t off, struct zns_err *err)
{
	unsigned nr = atomic_load(&e->control->nr_rules);

	for (unsigned i = 0; i < nr; i++) {
		struct emu_rule *r = &e->control->rule[i];

		if (r->kind == ZNS_EMU_CUT_POWER || counts_reads(r) == write)
			continue;
		if (hits(r, zone))
			return strike(e, r, write, zone, off, err);
	}
	return 0;
}

/* The cut follows the write that used up its count. */
void emu_fault_after_write(struct emu *e, uint32_t zone)
{
	unsigned nr = atomic_load(&e->control->nr_rules);

	for (unsigned i = 0; i < nr; i++) {
		struct emu_rule *r = &e->control->rule[i];

		if (r->kind != ZNS_EMU_CUT_POWER ||
		    (r->zone != ZNS_EMU_ANY_ZONE && r->zone != zone))
			continue;
		take(&r->left);
		if (!atomic_load(&r->left) && take(&r->times))
			control_cut_power(e, r->loss, r->seed);
	}
}

/* ---- rules ---- */

int zns_emu_add_fault(struct zns_dev *dev, const struct zns_emu_rule *r, struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	struct emu_rule *to;
	unsigned nr;

	if (dev->ops != &emu_ops && dev->ops != &file_ops)
		return emu_refuse_foreign(dev, err);
	nr = atomic_load(&e->control->nr_rules);
	if (nr == EMU_MAX_RULES)
		return zns_fail(err, -ENOSPC, "%s has %u faults to come already: clear them first",
				dev->path, nr);
	if ((unsigned)r->kind > ZNS_EMU_STOP_READ || (unsigned)r->loss > ZNS_EMU_LOSE_SEEDED)
		return zns_fail(err, -EINVAL, "unknown fault %u or loss %u", (unsigned)r->kind,
				(unsigned)r->loss);
	if (r->zone != ZNS_EMU_ANY_ZONE && r->zone >= e->p.nr_zones)
		return zns_fail(err, -EINVAL, "fault in zone %u: the device has zones 0 to %u",
				r->zone, e->p.nr_zones - 1);
	if (r->kind == ZNS_EMU_CUT_POWER && !r->after) {
		control_cut_power(e, r->loss, r->seed);
		return 0;
	}
	to = &e->control->rule[nr];
	to->kind = r->kind;
	to->zone = r->zone;
	to->loss = r->loss;
	to->seed = r->seed;
	atomic_store(&to->left, r->after);
	/* a cut or a worn zone comes only once */
	atomic_store(&to->times, repeats(r->kind) && r->times ? r->times : 1);
	atomic_store(&e->control->nr_rules, nr + 1);
	return 0;
}

int zns_emu_clear_faults(struct zns_dev *dev)
{
	if (dev->ops != &emu_ops && dev->ops != &file_ops)
		return -EMEDIUMTYPE;
	atomic_store(&emu_of(dev)->control->nr_rules, 0);
	return 0;
}

int zns_emu_set_fault(struct zns_dev *dev, const struct zns_emu_fault *f)
{
	struct zns_emu_rule r = { .kind = ZNS_EMU_FAIL_WRITE, .zone = ZNS_EMU_ANY_ZONE };
	int rc = zns_emu_clear_faults(dev);

	if (!rc && f->fail_write_after >= 0) {
		r.after = f->fail_write_after;
		rc = zns_emu_add_fault(dev, &r, NULL);
	}
	if (!rc && f->fail_read_after >= 0) {
		r.kind = ZNS_EMU_FAIL_READ;
		r.after = f->fail_read_after;
		rc = zns_emu_add_fault(dev, &r, NULL);
	}
	return rc;
}

/* ---- environment ---- */

/* Parses a plain number at *s and moves *s behind it. */
static bool number(const char **s, uint64_t *out)
{
	char digits[24];
	size_t n = strspn(*s, "0123456789");

	if (!n || n >= sizeof(digits))
		return false;
	memcpy(digits, *s, n);
	digits[n] = '\0';
	*s += n;
	return !zns_parse_size(digits, out);
}

/* "N[@Z][xT]" */
static bool parse_counts(const char *s, struct zns_emu_rule *r)
{
	uint64_t zone;

	if (!number(&s, &r->after))
		return false;
	if (*s == '@') {
		s++;
		if (!number(&s, &zone) || zone >= ZNS_EMU_ANY_ZONE)
			return false;
		r->zone = zone;
	}
	if (*s == 'x' && repeats(r->kind)) {
		s++;
		if (*s == '*') {
			r->times = UINT64_MAX;
			s++;
		} else if (!number(&s, &r->times) || !r->times) {
			return false;
		}
	}
	return !*s;
}

static bool parse_loss(const char *s, struct zns_emu_rule *cut)
{
	if (!strcmp(s, "drop") || !strcmp(s, "keep")) {
		cut->loss = *s == 'd' ? ZNS_EMU_LOSE_ALL : ZNS_EMU_LOSE_NOTHING;
		return true;
	}
	cut->loss = ZNS_EMU_LOSE_SEEDED;
	return number(&s, &cut->seed) && !*s;
}

static bool parse_word(char *word, struct zns_emu_rule *r)
{
	static const char *const name[] = {
		[ZNS_EMU_FAIL_WRITE] = "write-after",
		[ZNS_EMU_FAIL_READ] = "read-after",
		[ZNS_EMU_WEAR_READ_ONLY] = "read-only-after",
		[ZNS_EMU_WEAR_OFFLINE] = "offline-after",
		[ZNS_EMU_CUT_POWER] = "cut-after",
		[ZNS_EMU_CONFLICT] = "conflict-after",
		[ZNS_EMU_STOP] = "stop-after",
		[ZNS_EMU_STOP_READ] = "stop-read-after",
	};
	char *eq = strchr(word, '=');

	if (!eq)
		return false;
	*eq = '\0';
	for (unsigned i = 0; i < ZNS_ARRAY_SIZE(name); i++) {
		if (strcmp(word, name[i]))
			continue;
		*r = (struct zns_emu_rule){ .kind = i, .zone = ZNS_EMU_ANY_ZONE };
		return parse_counts(eq + 1, r);
	}
	return false;
}

int control_faults_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_FAULT");
	struct zns_emu_rule rule[EMU_MAX_RULES], cut = { .loss = ZNS_EMU_LOSE_ALL };
	char buf[512], *save = NULL;
	unsigned nr = 0;
	int rc = 0;

	if (!env || !*env)
		return 0;
	if (strlen(env) >= sizeof(buf))
		goto bad;
	memcpy(buf, env, strlen(env) + 1);
	for (char *word = strtok_r(buf, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (!strncmp(word, "loss=", 5)) {
			if (!parse_loss(word + 5, &cut))
				goto bad;
			continue;
		}
		if (nr == EMU_MAX_RULES || !parse_word(word, &rule[nr]))
			goto bad;
		nr++;
	}
	for (unsigned i = 0; !rc && i < nr; i++) {
		rule[i].loss = cut.loss;
		rule[i].seed = cut.seed;
		rc = zns_emu_add_fault(&e->dev, &rule[i], err);
	}
	return rc;
bad:
	return zns_fail(
		err, -EINVAL,
		"ZNS_EMU_FAULT=\"%.64s\": should be words like \"write-after=N\", \"read-only-after=N@ZONE\", \"cut-after=N,loss=keep\"",
		env);
}

/* ---- zone states ---- */

int zns_emu_set_zone_state(struct zns_dev *dev, uint32_t zone, enum zns_zone_state s,
			   struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	uint32_t flags = 0;
	int rc;

	if (dev->ops != &emu_ops)
		return emu_refuse_foreign(dev, err);
	switch (s) {
	case ZNS_ZONE_EMPTY:
		break;
	case ZNS_ZONE_READ_ONLY:
		flags = EMU_F_READ_ONLY;
		break;
	case ZNS_ZONE_OFFLINE:
		flags = EMU_F_OFFLINE;
		break;
	default:
		return zns_fail(
			err, -EINVAL,
			"zone %u cannot be put into state \"%s\": only read-only, offline or empty (back to normal)",
			zone, zns_zone_state_name(s));
	}
	rc = emu_zone_lock_to_change(e, zone, err);
	if (rc)
		return rc;
	rc = set_flags_locked(e, zone, flags, err);
	emu_zone_unlock(e, zone);
	return rc;
}
