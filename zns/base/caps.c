/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Gives up privileges that a program does not need, so that an attacker gains less.
 * Documentation/user/security.md has the table. */
#include <errno.h>
#include <sched.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include "zns/process.h"
#include "zns/util.h"

static bool listed(const int *caps, size_t nr, int cap)
{
	for (size_t i = 0; i < nr; i++)
		if (caps[i] == cap)
			return true;
	return false;
}

int zns_process_keep_caps(const int *caps, size_t nr, struct zns_err *err)
{
	cap_t has = cap_get_proc(), keep = cap_init();
	int ret = has && keep ? 0 : -ENOMEM;

	for (size_t i = 0; !ret && i < nr; i++) {
		cap_flag_value_t on = CAP_CLEAR;
		cap_value_t v = caps[i];

		/* Root in a container, or a plain user, may lack this capability. */
		if (!cap_get_flag(has, v, CAP_PERMITTED, &on) && on == CAP_SET &&
		    (cap_set_flag(keep, CAP_PERMITTED, 1, &v, CAP_SET) ||
		     cap_set_flag(keep, CAP_EFFECTIVE, 1, &v, CAP_SET)))
			ret = -errno;
	}
	if (!ret && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		ret = -errno;
	for (int cap = 0; !ret && cap <= cap_max_bits() - 1; cap++)
		if (!listed(caps, nr, cap))
			/*
			 * Ignored if refused (it needs CAP_SETPCAP): no_new_privs, set above, still
			 * prevents that execve() gives new capabilities.
			 */
			cap_drop_bound(cap);
	cap_reset_ambient();
	if (!ret && cap_set_proc(keep))
		ret = -errno;
	cap_free(has);
	cap_free(keep);
	return ret ? zns_fail_sys(err, ret, "cannot give up capabilities") : 0;
}

void zns_process_no_network(void)
{
	/* A plain user may not create a network namespace. The program's rights then stay as they
	 * are, which is no error. */
	if (unshare(CLONE_NEWNET))
		errno = 0;
}
