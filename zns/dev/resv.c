/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Makes sure that only one host writes: acquires, keeps and releases an NVMe reservation
 * (zns/reserve.h). */
#include <string.h>

#include "resv_priv.h"
#include "zns/util.h"

/* "zns-criu": the key is a hash with this seed, because other hosts must not see the machine id
 * itself */
#define KEY_SEED 0x7a6e732d63726975

typedef unsigned long long ull;

uint64_t zns_resv_key(const char *machine)
{
	uint64_t key = zns_hash_seeded(machine, strlen(machine), KEY_SEED);

	return key ? key : 1;
}

const char *zns_resv_type_name(uint8_t type)
{
	static const char *const name[] = {
		"none",
		"write-exclusive",
		"exclusive-access",
		"write-exclusive-registrants-only",
		"exclusive-access-registrants-only",
		"write-exclusive-all-registrants",
		"exclusive-access-all-registrants",
	};

	return type < ZNS_ARRAY_SIZE(name) ? name[type] : "unknown";
}

int zns_resv_open(struct zns_dev *dev, const char *machine, struct zns_resv *r, struct zns_err *err)
{
	*r = (struct zns_resv){ .dev = dev, .fd = dev->ops->nvme_fd ? dev->ops->nvme_fd(dev) : -1 };
	if (r->fd < 0)
		return 0;
	r->own_key = zns_resv_key(machine);
	return resv_identify(r, machine, err);
}

static bool is_me(const struct zns_resv *r, const struct resv_host *h)
{
	return !memcmp(h->host, r->host, sizeof(r->host));
}

static const struct resv_host *find_me(const struct zns_resv *r, const struct resv_report *rep)
{
	for (uint32_t i = 0; i < rep->nr; i++)
		if (is_me(r, &rep->hosts[i]))
			return &rep->hosts[i];
	return NULL;
}

/* Finds the host that holds the reservation. With types 5 and 6 several hosts hold it: then this
 * host if it is among them. */
static const struct resv_host *find_holder(const struct zns_resv *r, const struct resv_report *rep)
{
	const struct resv_host *found = NULL;

	for (uint32_t i = 0; rep->type && i < rep->nr; i++)
		if (rep->hosts[i].holder && (!found || is_me(r, &rep->hosts[i])))
			found = &rep->hosts[i];
	return found;
}

int zns_resv_look(const struct zns_resv *r, struct zns_resv_state *out, struct zns_err *err)
{
	const struct resv_host *holder;
	struct resv_report rep;
	int ret;

	*out = (struct zns_resv_state){ 0 };
	if (!r->offered)
		return 0;
	ret = resv_report_read(r, &rep, err);
	if (ret)
		return ret;
	holder = find_holder(r, &rep);
	if (holder)
		*out = (struct zns_resv_state){
			.held = true, .ours = is_me(r, holder), .type = rep.type, .key = holder->key
		};
	free(rep.hosts);
	return 0;
}

static int refuse(const struct zns_resv *r, uint64_t key, const struct zns_resv_peer *peer,
		  struct zns_err *err)
{
	bool known = peer && peer->machine && zns_resv_key(peer->machine) == key;

	return zns_fail(
		err, -EBUSY,
		"%s is reserved by %s%s (NVMe reservation, key 0x%016llx); if that host no longer has "
		"it: znsctl register --take-over %s",
		r->dev->path, known ? "host " : "another host", known ? peer->host : "", (ull)key,
		r->dev->path);
}

static int failed(const struct zns_resv *r, const struct zns_err *why, struct zns_err *err)
{
	return zns_fail(err, -EIO, "%s cannot be reserved for this host: %s", r->dev->path,
			why->msg);
}

static uint8_t best_type(const struct zns_resv *r)
{
	return r->types & 1 << RESV_WRITE_EXCLUSIVE ? RESV_WRITE_EXCLUSIVE : RESV_WRITE_REGISTRANTS;
}

/* Acquires the reservation; this host must be registered. *holder: the present holder, or NULL. */
static int get(struct zns_resv *r, const struct resv_report *rep, const struct resv_host *holder,
	       const struct zns_resv_peer *peer, struct zns_err *err)
{
	bool all = rep->type == RESV_WRITE_ALL || rep->type == RESV_ACCESS_ALL;
	struct zns_err why = ZNS_ERR_INIT;
	struct zns_resv_state now;
	int got, ret;

	r->type = best_type(r);
	got = holder ? resv_preempt(r, r->type, r->key, all ? 0 : holder->key, &why) :
		       resv_acquire(r, r->type, r->key, &why);
	if (got && got != -EBADE)
		return failed(r, &why, err);
	/* Another host may have acquired it first. So read the report; the success of the command
	 * proves nothing. */
	ret = zns_resv_look(r, &now, err);
	if (ret)
		return ret;
	if (now.held && !now.ours)
		return refuse(r, now.key, peer, err);
	if (!now.held && !got)
		zns_fail(&why, -EIO,
			 "the drive accepted the reservation, but its report does not show it");
	return now.held ? 0 : failed(r, &why, err);
}

int zns_resv_take(struct zns_resv *r, bool take_over, const struct zns_resv_peer *peer,
		  struct zns_err *err)
{
	const struct resv_host *me, *holder;
	struct zns_err why = ZNS_ERR_INIT;
	struct resv_report rep;
	bool new = false;
	int ret;

	if (!r->offered)
		return 0;
	ret = resv_report_read(r, &rep, err);
	if (ret)
		return ret;
	me = find_me(r, &rep);
	holder = find_holder(r, &rep);
	r->key = me ? me->key : r->own_key;
	r->fresh = !holder || !is_me(r, holder);
	/* A holder with this machine's key but another host identifier is this machine before a
	 * reboot. */
	if (holder && !is_me(r, holder) && holder->key != r->own_key && !take_over)
		ret = refuse(r, holder->key, peer, err);
	if (!ret && !me) {
		new = !resv_register(r, r->key, &why);
		ret = new ? 0 : failed(r, &why, err);
	}
	if (!ret && r->fresh)
		ret = get(r, &rep, holder, peer, err);
	else if (!ret)
		r->type = rep.type;
	r->held = !ret;
	if (ret && new)
		resv_unregister(r, r->key, NULL);
	free(rep.hosts);
	return ret;
}

int zns_resv_leave(struct zns_resv *r, struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;
	bool own = r->key == r->own_key;
	int ret;

	if (!r->held)
		return 0;
	r->held = false;
	if (!own && !r->fresh)
		return 0;
	/* A conflict means that another host has taken the reservation over and this one is no
	 * longer registered. */
	ret = resv_release(r, r->type, r->key, &why);
	if ((!ret || ret == -EBADE) && own)
		ret = resv_unregister(r, r->key, &why);
	if (!ret || ret == -EBADE)
		return 0;
	return zns_fail(err, ret, "the reservation of %s cannot be given back: %s", r->dev->path,
			why.msg);
}
