/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dumps tasks whose memory is partly on zones, registered with the userfaultfd of one of our
 * pagers. The helper asks the pager to pause and to report where the units are. From then on the
 * dump works like a live one: the helper has the pages.
 */
#include "cr_options.h"
#include "log.h"
#include "zns-guard.h"
#include "zns-img.h"
#include "zns-link.h"
#include "zns-live.h"
#include "zns-opts.h"
#include "zns-state.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

static bool has_pager;

bool zns_mem_begun(void)
{
	return has_pager;
}

int zns_mem_begin(pid_t root)
{
	struct zns_msg m = ZNS_MSG(ZW_MEM_BEGIN);
	struct zw_reply r;

	if (zns_session.state != ZNS_DUMP || zns_session.receiving || opts.use_page_server)
		return 0;
	m.h.pid = root;
	if (zns_ask(&m, &r, NULL)) {
		zns_pr_err("%s\n", r.msg);
		return -1;
	}
	has_pager = r.kind == ZW_KIND_PAGES;
	if (has_pager && opts.lazy_pages) {
		pr_err("--lazy-pages does not work with memory that is on zones: leave it out, or `znsctl memory detach` first\n");
		return -1;
	}
	if (has_pager)
		pr_info("%s\n", r.msg);
	return 0;
}

bool zns_mem_answers(pid_t pid, unsigned long start, unsigned long end)
{
	struct zns_msg m = ZNS_MSG(ZW_MEM_OWNS);
	struct zw_iov area = { start, end - start };
	struct zw_reply r;

	if (!has_pager)
		return false;
	m.h.pid = pid;
	m.h.nr = 1;
	m.payload = &area;
	m.len = sizeof(area);
	if (zns_ask(&m, &r, NULL)) {
		zns_pr_err("%s\n", r.msg);
		return false;
	}
	return r.kind == ZW_KIND_PAGES;
}
