/* SPDX-License-Identifier: GPL-2.0-only */
/* key: master keys, and the choice of the key that encrypts a device's checkpoints */
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "lib/ctl.h"
#include "zns/crypt.h"
#include "zns/store.h"

#define SPEC_MAX (PATH_MAX + 16)

struct key_args {
	const struct ctl_cmd *cmd;
	bool json;
	const char *dev;
	const char *word; /* the argument: the new file for `create`, the value for `plain` */
	char spec[SPEC_MAX]; /* empty: not given */
};

/*
 * Is @s a KEYSPEC? "file:PATH" may be a key or a store on a disk: it is no key if it is registered
 * as a store.
 */
static bool is_spec(const char *s)
{
	struct zns_registered reg;

	return !strncmp(s, "keyring:", 8) ||
	       (!strncmp(s, "file:", 5) && zns_registered_by_path(s, &reg, NULL));
}

static bool wants(const ZnsPb__Response *r)
{
	return r->encryption && r->encryption->has_key_id &&
	       r->encryption->key_id.len == ZNS_KEY_ID_BYTES;
}

static bool has_key(const ZnsPb__Checkpoint *c)
{
	return c->crypt && c->crypt->has_wrapped && c->crypt->has_key_id &&
	       c->crypt->key_id.len == ZNS_KEY_ID_BYTES;
}

static int print_id(const struct key_args *a, const char *what, const char *name, const uint8_t *id)
{
	char str[ZNS_KEY_ID_STR];

	zns_key_id_format(id, str);
	if (a->json)
		return ctl_print_json(ctl_obj(J("key", name), J("key_id", str)));
	printf("%s%s%s: fingerprint %s\n", what, *what ? " " : "", name, str);
	return CTL_OK;
}

static int key_create(const struct key_args *a, struct zns_err *err)
{
	const char *path = a->word;
	struct zns_master *m;
	char spec[SPEC_MAX];
	int ret;

	snprintf(spec, sizeof(spec), "file:%s", strncmp(path, "file:", 5) ? path : path + 5);
	ret = zns_master_create(spec + 5, err);
	if (ret)
		return ret;
	ret = zns_master_load(spec, &m, err);
	if (ret) { /* remove the new key file: no checkpoint uses it yet */
		unlink(spec + 5);
		return ret;
	}
	print_id(a, "made a new key in", spec + 5, zns_master_id(m));
	zns_master_free(m);
	return 0;
}

/*
 * Counts the encrypted checkpoints. *other: how many of their keys are wrapped by another master
 * key than @id.
 */
static size_t count(const ZnsPb__Response *ls, const uint8_t *id, size_t *other,
		    const uint8_t **which)
{
	size_t n = 0;

	*other = 0;
	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];

		n += c->crypt != NULL;
		if (!has_key(c) || (id && !memcmp(c->crypt->key_id.data, id, ZNS_KEY_ID_BYTES)))
			continue;
		(*other)++;
		*which = c->crypt->key_id.data;
	}
	return n;
}

static int show_device(const struct key_args *a, struct zns_err *err)
{
	char spec[SPEC_MAX] = "", id[ZNS_KEY_ID_STR] = "", want[ZNS_KEY_ID_STR] = "";
	struct zns_err why = ZNS_ERR_INIT;
	struct zns_broker b = { .fd = -1 };
	struct zns_master *m = NULL;
	cleanup_answer ZnsPb__Response *ls = NULL;
	struct zns_registered reg;
	const uint8_t *which;
	struct ctl_fold fold;
	size_t n, other;
	bool of_host = false;
	int ret;

	ret = ctl_connect(a->dev, &reg, &b, err);
	if (!ret)
		ret = ctl_ls(&b, &ls, err);
	zns_broker_close(&b);
	if (ret)
		return ret;
	if (!zns_key_spec_of(&reg, spec, sizeof(spec), &of_host, &why) &&
	    !zns_master_load(spec, &m, &why))
		zns_key_id_format(zns_master_id(m), id);
	if (wants(ls))
		zns_key_id_format(ls->encryption->key_id.data, want);
	n = count(ls, m ? zns_master_id(m) : NULL, &other, &which);
	if (a->json) {
		ctl_print_json(ctl_obj(J("device", reg.path),
				       J("wanted_key_id", *want ? want : NULL),
				       J("key", *spec ? spec : NULL), J("key_id", *id ? id : NULL),
				       J("error", *id ? NULL : why.msg),
				       J("encrypted_checkpoints", n), J("with_other_keys", other),
				       J("plain_checkpoints", ls->n_checkpoints - n),
				       JB("plain_accepted", reg.plain_ok),
				       JB("encrypted_only_here", reg.encrypted)));
	} else {
		ctl_fold_begin(&fold);
		printf("device         %s\n", reg.path);
		printf("new ones       %s%s\n",
		       *want   ? "encrypted with key " :
		       of_host ? "encrypted (encrypt-key in zns.conf)" :
				 "plain",
		       want);
		if (*id)
			printf("key here       %s, %s\n", spec, id);
		else
			printf("key here       none: %s\n", why.msg);
		printf("encrypted      %zu checkpoints", n);
		if (other)
			printf(", %zu of them cannot be read with the key here", other);
		printf("\n");
		printf("plain          %zu checkpoints%s\n", ls->n_checkpoints - n,
		       reg.plain_ok ? ", taken (`znsctl key plain refuse` ends that)" :
		       reg.encrypted || *want || of_host ? ", refused" :
							   "");
		ctl_fold_end(&fold, 0);
	}
	zns_master_free(m);
	return 0;
}

static int key_show(const struct key_args *a, struct zns_err *err)
{
	struct zns_master *m;
	int ret;

	if (!*a->spec)
		return show_device(a, err);
	ret = zns_master_load(a->spec, &m, err);
	if (ret)
		return ret;
	print_id(a, "", a->spec, zns_master_id(m));
	zns_master_free(m);
	return 0;
}

/*
 * Lists unencrypted checkpoints: from now on they cannot be restored unless the administrator
 * allows it.
 */
static void note_plain(const struct key_args *a, const struct zns_registered *reg,
		       const ZnsPb__Response *ls)
{
	size_t n = 0;

	for (size_t i = 0; i < ls->n_checkpoints; i++)
		n += !ls->checkpoints[i]->crypt;
	if (n && !reg->plain_ok)
		fprintf(stderr,
			"%s: note: %zu checkpoint%s on it %s not encrypted, and will not be restored; to accept them anyway: znsctl key plain accept\n",
			a->cmd->name, n, n == 1 ? "" : "s", n == 1 ? "is" : "are");
}

static int ask_encryption(struct zns_broker *b, const uint8_t *id, struct zns_err *err)
{
	ZnsPb__Encryption e = ZNS_PB__ENCRYPTION__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	e.has_key_id = id != NULL;
	e.key_id = (ProtobufCBinaryData){ id ? ZNS_KEY_ID_BYTES : 0, (uint8_t *)id };
	req.encryption = &e;
	return ctl_tell(b, &req, err);
}

static int report(const struct key_args *a, const struct zns_registered *reg, const char *what,
		  const char *key_id, size_t rewrapped)
{
	if (a->json)
		return ctl_print_json(ctl_obj(J("device", (const char *)reg->path),
					      J("key_id", key_id), J("rewrapped", rewrapped)));
	printf("%s: %s%s%s\n", reg->path, what, key_id ? " with key " : "", key_id ? key_id : "");
	return 0;
}

static int key_use(const struct key_args *a, struct zns_err *err)
{
	char id[ZNS_KEY_ID_STR], old[ZNS_KEY_ID_STR];
	struct zns_broker b = { .fd = -1 };
	struct zns_master *m = NULL;
	cleanup_answer ZnsPb__Response *ls = NULL;
	struct zns_registered reg;
	const uint8_t *which;
	size_t other;
	int ret;

	ret = zns_master_load(a->spec, &m, err);
	if (!ret)
		ret = ctl_connect(a->dev, &reg, &b, err);
	if (!ret)
		ret = ctl_ls(&b, &ls, err);
	if (!ret) {
		count(ls, zns_master_id(m), &other, &which);
		if (other)
			ret = zns_fail(
				err, -EKEYREJECTED,
				"%zu checkpoints on %s have keys wrapped with key %s, and could not be read any "
				"more: `znsctl key rotate` wraps them anew, with both keys at hand",
				other, reg.path, zns_key_id_format(which, old));
	}
	/* Configure the key for reading first, then the setting that requires it. */
	if (!ret)
		ret = zns_register_key(reg.uuid, a->spec, err);
	if (!ret && !(wants(ls) &&
		      !memcmp(ls->encryption->key_id.data, zns_master_id(m), ZNS_KEY_ID_BYTES)))
		ret = ask_encryption(&b, zns_master_id(m), err);
	/*
	 * store the setting on this host as well: an attacker with access to the device could
	 * remove it there
	 */
	if (!ret)
		ret = zns_register_flags(reg.uuid, true, -1, err);
	if (!ret)
		note_plain(a, &reg, ls);
	if (!ret)
		report(a, &reg, "new checkpoints are encrypted",
		       zns_key_id_format(zns_master_id(m), id), 0);
	zns_broker_close(&b);
	zns_master_free(m);
	return ret;
}

static int key_off(const struct key_args *a, struct zns_err *err)
{
	struct zns_broker b = { .fd = -1 };
	struct zns_registered reg;
	char value[SPEC_MAX];
	int ret = ctl_connect(a->dev, &reg, &b, err);

	if (!ret && b.encrypted)
		ret = ask_encryption(&b, NULL, err);
	zns_broker_close(&b);
	if (!ret)
		ret = zns_register_flags(reg.uuid, false, false, err);
	if (ret)
		return ret;
	if (!zns_config_get("encrypt-key", value, sizeof(value), NULL))
		fprintf(stderr,
			"%s: note: dumps of this machine stay encrypted, since its zns.conf has encrypt-key\n",
			a->cmd->name);
	return report(a, &reg, "new checkpoints are plain; encrypted ones stay as they are", NULL,
		      0);
}

/* Allows or forbids the restore of unencrypted checkpoints on a device that requires encryption. */
static int key_plain(const struct key_args *a, struct zns_err *err)
{
	bool accept = !strcmp(a->word, "accept");
	struct zns_registered reg;
	int ret = zns_resolve_device(a->dev, &reg, err);

	if (!ret)
		ret = zns_register_flags(reg.uuid, -1, accept, err);
	if (ret)
		return ret;
	if (a->json)
		return ctl_print_json(ctl_obj(J("device", reg.path), J("plain_accepted", accept)));
	printf("%s: checkpoints that are not encrypted are %s\n", reg.path,
	       accept ? "taken on this machine, also where encryption is "
			"asked for: a forged one is not told from them" :
			"refused where encryption is asked for");
	return 0;
}

/* Decrypts all keys with @from and encrypts them with @to. */
static int rewrap(const struct zns_master *from, const struct zns_master *to,
		  const ZnsPb__Response *ls, ZnsPb__Rekey *q, struct zns_err *err)
{
	q->lines = calloc(ls->n_checkpoints + 1, sizeof(*q->lines));
	if (!q->lines)
		return zns_fail(err, -ENOMEM, "no memory for wrapped keys");
	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];
		ZnsPb__KeyLine *l;
		int ret;

		if (!has_key(c) || c->id.len != ZNS_UUID_LEN)
			continue;
		l = calloc(1, sizeof(*l));
		if (!l)
			return zns_fail(err, -ENOMEM, "no memory for wrapped keys");
		zns_pb__key_line__init(l);
		q->lines[q->n_lines++] = l;
		l->checkpoint = c->id; /* borrowed from the broker's answer */
		ret = zns_crypt_rewrap(from, to, c->id.data, c->crypt, &l->crypt, err);
		if (ret)
			return ret;
	}
	return 0;
}

static void free_lines(ZnsPb__Rekey *q)
{
	for (size_t i = 0; i < q->n_lines; i++) {
		if (q->lines[i]->crypt)
			zns_pb__checkpoint_key__free_unpacked(q->lines[i]->crypt, NULL);
		free(q->lines[i]);
	}
	free(q->lines);
}

static int send_rekey(const struct key_args *a, struct zns_broker *b, ZnsPb__Rekey *q,
		      struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;
	int ret;

	req.rekey = q;
	ret = zns_broker_call(b, &req, &r, err);
	if (ret)
		return ret;
	if (r->note)
		fprintf(stderr,
			"%s: note: keys wrapped by the old key may still be on the device: %s\n",
			a->cmd->name, ctl_text(r->note));
	zns_pb__response__free_unpacked(r, NULL);
	return 0;
}

static int key_rotate(const struct key_args *a, struct zns_err *err)
{
	struct zns_master *from = NULL, *to = NULL;
	ZnsPb__Rekey q = ZNS_PB__REKEY__INIT;
	char old[SPEC_MAX], id[ZNS_KEY_ID_STR];
	struct zns_broker b = { .fd = -1 };
	cleanup_answer ZnsPb__Response *ls = NULL;
	struct zns_registered reg;
	bool of_host;
	int ret;

	ret = zns_master_load(a->spec, &to, err);
	if (!ret)
		ret = ctl_connect(a->dev, &reg, &b, err);
	if (!ret)
		ret = zns_key_spec_of(&reg, old, sizeof(old), &of_host, err);
	if (!ret)
		ret = zns_master_load(old, &from, err);
	if (!ret)
		ret = ctl_ls(&b, &ls, err);
	if (!ret)
		ret = rewrap(from, to, ls, &q, err);
	if (!ret) {
		q.has_key_id = wants(ls);
		if (q.has_key_id)
			q.key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES,
							  (uint8_t *)zns_master_id(to) };
		ret = send_rekey(a, &b, &q, err);
	}
	if (!ret) {
		zns_key_id_format(zns_master_id(to), id);
		ret = zns_register_key(reg.uuid, a->spec, err);
		if (ret)
			zns_wrap(err, "done, but not noted here (run `znsctl key use %s`)",
				 a->spec);
		else
			report(a, &reg, "all keys are wrapped", id, q.n_lines);
	}
	free_lines(&q);
	zns_broker_close(&b);
	zns_master_free(from);
	zns_master_free(to);
	return ret;
}

/* Parses the arguments after the verb: a KEYSPEC and a device, in any order. */
static int take_args(struct key_args *a, const struct ctl_args *args, struct zns_err *err)
{
	uint8_t uuid[ZNS_UUID_LEN];

	for (int i = 1; i < args->argc; i++) {
		const char *s = args->argv[i];

		if (is_spec(s) && !*a->spec) {
			if (zns_key_spec_check(s, a->spec, sizeof(a->spec), err))
				return err->code;
		} else if (!is_spec(s) && !a->dev) {
			if (!zns_spec_named(s) && zns_uuid_parse(s, uuid))
				return zns_fail(
					err, -EINVAL,
					"\"%.80s\" is neither a device nor a KEYSPEC: a key in a file is file:%.80s, one in the "
					"keyring keyring:DESCRIPTION",
					s, s);
			a->dev = s;
		} else {
			return zns_fail(err, -EINVAL, "\"%.80s\" is one argument too many", s);
		}
	}
	return 0;
}

enum spec { NO_SPEC, MAY_SPEC, MUST_SPEC };

static const struct verb {
	const char *name;
	enum spec spec;
	int (*run)(const struct key_args *a, struct zns_err *err);
} verbs[] = {
	{ "show", MAY_SPEC, key_show },     { "use", MUST_SPEC, key_use },
	{ "off", NO_SPEC, key_off },        { "rotate", MUST_SPEC, key_rotate },
	{ "create", MAY_SPEC, key_create }, { "plain", NO_SPEC, key_plain },
};

static int cmd_key(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct key_args a = { .cmd = cmd };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct verb *v = verbs, *end = verbs + ZNS_ARRAY_SIZE(verbs);
	const struct ctl_opt opts[] = { CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	a.json = args.json;
	a.dev = args.dev;
	while (v < end && (!args.argc || strcmp(args.argv[0], v->name)))
		v++;
	if (v == end)
		return ctl_usage(cmd,
				 "the first argument is create, show, use, off, rotate or plain");
	zns_crypt_harden();
	/* these two verbs have another first argument */
	if (v->run == key_create || v->run == key_plain) {
		a.word = args.argc > 1 ? args.argv[1] : "";
		args.argc--;
		args.argv++;
	}
	if (v->run == key_create && args.argc != 1)
		return ctl_usage(cmd, "give one file, which must not exist yet");
	if (v->run == key_plain && strcmp(a.word, "accept") && strcmp(a.word, "refuse"))
		return ctl_usage(cmd, "after plain comes accept or refuse");
	if (take_args(&a, &args, &err))
		return ctl_usage(cmd, "%s", err.msg);
	if (!*a.spec && v->spec == MUST_SPEC)
		return ctl_usage(cmd, "give a KEYSPEC: file:PATH or keyring:DESCRIPTION");
	if (*a.spec && v->spec == NO_SPEC)
		return ctl_usage(cmd, "this takes no KEYSPEC");
	return v->run(&a, &err) ? ctl_fail(cmd, &err) : CTL_OK;
}

const struct ctl_cmd command_key = {
	"key",
	"create FILE|show [KEYSPEC] [DEV]|use KEYSPEC [DEV]|off [DEV]|rotate KEYSPEC [DEV]|plain accept|refuse [DEV]",
	"encryption keys, and which one a device uses for new checkpoints",
	"  create FILE     a new random key, for root only\n"
	"  show            the key of a device; with KEYSPEC (file:PATH or\n"
	"                  keyring:DESCRIPTION) its fingerprint\n"
	"  use KEYSPEC     from now on the device's new checkpoints are encrypted with it\n"
	"  off             from now on they are plain\n"
	"  rotate KEYSPEC  wrap the keys of all checkpoints with another one\n"
	"  plain WORD      accept or refuse: whether this machine restores checkpoints\n"
	"                  that are not encrypted\n" CTL_DEV_HELP,
	cmd_key,
};

/* ---- functions for create and format ---- */

int ctl_encrypt_load(const char *spec, struct ctl_encrypt *e, struct zns_err *err)
{
	struct zns_master *m;
	int ret;

	e->on = false;
	if (!spec)
		return 0;
	ret = zns_key_spec_check(spec, e->spec, sizeof(e->spec), err);
	if (!ret)
		ret = zns_master_load(e->spec, &m, err);
	if (ret)
		return ret;
	memcpy(e->key_id, zns_master_id(m), sizeof(e->key_id));
	zns_master_free(m);
	e->on = true;
	return 0;
}

int ctl_encrypt_store(struct zns_dev *dev, const struct ctl_encrypt *e, struct zns_err *err)
{
	ZnsPb__Encryption rec = ZNS_PB__ENCRYPTION__INIT;
	struct zns_store *s;
	int ret;

	if (!e->on)
		return 0;
	rec.has_key_id = 1;
	rec.key_id = (ProtobufCBinaryData){ sizeof(e->key_id), (uint8_t *)e->key_id };
	rec.since_ns = zns_now_ns();
	ret = zns_store_open(dev, 0, &s, err);
	if (ret)
		return ret;
	ret = zns_store_set_encryption(s, &rec, err);
	zns_store_close(s);
	return ret;
}
