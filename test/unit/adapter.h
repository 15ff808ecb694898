/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_ADAPTER_H
#define TEST_ADAPTER_H
/* criu's headers, for tests of criu/adapter, which are linked with its objects as criu's build made
 * them. Their warnings are criu's. */
#pragma GCC system_header
#include "clone-noasan.h"
#include "common/compiler.h"
#include "cr_options.h"
#include "image.h"
#include "kerndat.h"
#include "pagemap.h"
#include "pstree.h"
#include "restorer.h"
#include "rst-malloc.h"
#include "servicefd.h"
#include "util.h"
#include "zns-extend.h"
#include "zns-img.h"
#include "zns-settings.h"
#include "../../criu/adapter/lazy/zns-lazy.h"
#include "../../criu/adapter/zns-link.h"
#include "../../criu/adapter/zns-opts.h"
#include "../../criu/adapter/zns-pages.h"
#include "../../criu/adapter/zns-state.h"
#endif
