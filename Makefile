# SPDX-License-Identifier: GPL-2.0-only
# ZNS-CRIU: one Makefile for the fork (fetched, patched, built), libzns and its programs.
#
#   make deps    install the Debian packages needed       make test          everything CI checks
#   make         build into build/bin                     make zdtm-sample   our criu against stock, without zones
#   make demo    a live Redis into zones and back         make bench         the papers' experiments; beside stock CRIU
#   make unit | zonetests | errors | tools | interop | fuzz | lint          make install | uninstall | clean
#   make deb     packages, in build/deb                 make test-deb      they alone in bare roots
#   make test-vm real zoned block devices and NVMe passthrough, in guests with several kernels
#
# V=1 shows the commands, SAN="-fsanitize=address,undefined" builds with sanitizers (use another B=DIR).
SHELL		:= /bin/bash
.DELETE_ON_ERROR:

B		:= build
BIN		:= $(B)/bin
GEN		:= $(B)/gen
V		?= 0
Q		:= $(if $(filter 1,$(V)),,@)
say		= $(if $(filter 1,$(V)),,@echo "  $(1)")

# --- what it takes -----------------------------------------------------------------------------------------------
DEB_BUILD	:= build-essential pkg-config patch xz-utils ca-certificates libprotobuf-dev libprotobuf-c-dev \
		   protobuf-c-compiler protobuf-compiler libnl-3-dev libcap-dev libnet1-dev libbsd-dev libnftables-dev \
		   libgnutls28-dev uuid-dev libaio-dev python3 python3-protobuf python3-yaml libxxhash-dev libjson-c-dev \
		   libzbd-dev libnvme-dev liburing-dev libfuse3-dev libssl-dev libarchive-dev
DEB_TEST	:= libcmocka-dev redis-server redis-tools iproute2 iptables nftables procps util-linux libnl-route-3-dev
DEB_DOCKER	:= docker.io runc
DEB_DOC		:= asciidoc-base xmlto
DEB_BARE	:= mmdebstrap debian-archive-keyring git
DEB_REGISTRY	:= skopeo docker-registry
DEB_KUBELET	:= curl iproute2 iptables
DEB_PACKAGE	:= debhelper dpkg-dev fakeroot lintian
PKGS		:= libprotobuf-c libxxhash json-c libzbd libnvme liburing libcrypto libcap
export DEBIAN_FRONTEND := noninteractive
# The distribution's python: criu's build and zdtm need its protobuf module.
SYS_PATH	:= /usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin

CC		:= $(if $(filter default,$(origin CC)),gcc,$(CC))
OPT		?= -O2 -g
SAN		?=
WARN		:= -Wall -Wextra -Werror -Wno-unused-parameter $(if $(filter clang%,$(CC)),-Wno-gnu,-Wno-format-truncation) -Wshadow -Wstrict-prototypes \
		   -Wmissing-prototypes
CPPFLAGS	:= -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Izns/include -I$(GEN) -Icriu/include \
		   $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
CFLAGS		:= -std=gnu11 $(OPT) $(WARN) $(SAN)
# Static, so that znsctl runs where libfuse is not installed.
FUSE_LIBS	:= -l:libfuse3.a -ldl -lrt
LDLIBS		:= -Wl,--as-needed $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lpthread -lm

PROTO_C		:= $(patsubst images/%.proto,$(GEN)/%.pb-c.c,$(wildcard images/*.proto))
PROTO_O		:= $(PROTO_C:.c=.o)
objs		= $(patsubst %.c,$(B)/%.o,$(1))
LIB_OBJ		:= $(call objs,$(foreach d,base track mem crypt dev probe alloc store stripe stripe/write client pages keep,$(wildcard zns/$(d)/*.c)))
ZNSD_OBJ	:= $(call objs,$(wildcard zns/broker/*/*.c))
# What zns-runc and znsctl share is all of zns/docker but the wrapper's own main, args, extend, pause and report.
RUNC_SRC	:= $(addprefix zns/docker/,main.c args.c extend.c pause.c report.c)
DOCKER_OBJ	:= $(call objs,$(filter-out $(RUNC_SRC),$(wildcard zns/docker/*.c)))
RUNC_OBJ	:= $(call objs,$(RUNC_SRC))
CTL_OBJ		:= $(call objs,$(wildcard zns/ctl/*.c))
# What the programs that `znsctl docker` and `znsctl probe` become share with znsctl: all that is no command.
CTL_LIB_OBJ	:= $(filter-out %/main.o %/external.o $(B)/zns/ctl/cmd_%,$(CTL_OBJ))
DOCKER_CMD_OBJ	:= $(call objs,$(wildcard zns/docker/cmd/*.c))
PROBE_CMD_OBJ	:= $(call objs,$(wildcard zns/probe/cmd/*.c))
CONFORM_OBJ	:= $(call objs,$(wildcard zns/selftest/*.c))
SELFTEST_OBJ	:= $(call objs,$(wildcard zns/selftest/cmd/*.c))
HELPER_OBJ	:= $(call objs,$(wildcard zns/helper/*.c))
MEMKEEP_OBJ	:= $(call objs,$(wildcard zns/keep/cmd/*.c))
MEM_OBJ		:= $(call objs,$(wildcard zns/mem/cmd/*.c))
# A test build has power cuts, faults and noise of the emulator where the product has control_none.c and spawn_none.c.
CONTROL_OBJ	:= $(call objs,$(wildcard test/controls/*.c test/controls/*/*.c))
TEST_OBJ	:= $(filter-out %_none.o,$(LIB_OBJ)) $(CONTROL_OBJ)
TEST_LIB	:= $(B)/test/libzns.a
TEST_BIN	:= $(B)/test/bin
TEST_PROGRAMS	:= $(addprefix $(TEST_BIN)/,znsd znsctl znsctl-probe znsctl-selftest zns-helper zns-mem zns-memkeep) $(B)/test/next/znsd
ALL_OBJ		:= $(LIB_OBJ) $(ZNSD_OBJ) $(CTL_OBJ) $(HELPER_OBJ) $(DOCKER_OBJ) $(RUNC_OBJ) $(DOCKER_CMD_OBJ) $(PROBE_CMD_OBJ) $(MEMKEEP_OBJ) $(MEM_OBJ) \
		   $(CONFORM_OBJ) $(SELFTEST_OBJ) $(CONTROL_OBJ)
# test_mem_refused runs others where the kernel refuses io_uring, which takes minutes, as test_mem_moves meeting does: make unit-refused
UNIT_BIN	:= $(patsubst test/unit/%.c,$(B)/test/%,$(filter-out %/test_mem_refused.c,$(wildcard test/unit/test_*.c)))
FUZZ_BIN	:= $(patsubst test/fuzz/%.c,$(B)/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))

ADAPTER		:= $(wildcard criu/*.c criu/*.h criu/include/*.h)
CRIU_SRC	:= $(B)/criu
PATCHES		:= criu/base criu/patches/series $(wildcard criu/patches/*.patch criu/patches/*/*.patch) scripts/fetch-criu scripts/fetch-orig

.PHONY: all zns criu deps deps-vm deps-doc deps-docker deps-bare deps-clang
.PHONY: unit conform crash kill scale scale-small zonetests errors tools chains incremental bench-steps bench-incremental bench-live crypt migration rounds test
.PHONY: test-vm zdtm zdtm-sample zdtm-smoke zdtm-migration
.PHONY: demo bench bench-emu bench-probe
.PHONY: fuzz fuzz-build lint man install uninstall clean
all: zns criu

# --- dependencies ------------------------------------------------------------------------------------------------
MISSING		= $(strip $(foreach p,$(DEB_BUILD) $(1),$(shell dpkg-query -W -f='$${Status}' $(p) 2>/dev/null | \
		  grep -q 'ok installed' || echo $(p))))

# $(call install,PACKAGES): those that are missing, and what the build needs.
install_now	= apt-get -qq update && apt-get -qq install -y --no-install-recommends
install		= missing="$(call MISSING,$(1))"; [ -z "$$missing" ] || { echo "  APT     $$missing"; $(install_now) $$missing >/dev/null; }

deps:
	$(Q)$(call install,$(DEB_TEST))

# What builds and runs the guests; the list is scripts/vm/packages.
DEB_VM		= $(shell awk '$$1 == "host" { $$1 = ""; print }' scripts/vm/packages)
deps-vm: deps
	$(Q)$(call install,$(DEB_VM))

# Debian 12 has the command in docker.io, Debian 13 in a package of its own.
deps-docker:
	$(Q)$(call install,$(DEB_DOCKER))
	$(Q)[ -x /usr/bin/docker ] || { echo "  APT     docker-cli"; $(install_now) docker-cli >/dev/null; }

deps-doc:
	$(Q)$(call install,$(DEB_DOC))

# What makes a bare root.
deps-bare:
	$(Q)$(call install,$(DEB_BARE))

# clang's runtime is packaged by version.
deps-clang:
	$(Q)$(call install,clang clang-tidy clang-format)
	$(Q)rt=libclang-rt-$$(clang -dumpversion | cut -d. -f1)-dev; dpkg -s $$rt >/dev/null 2>&1 || \
		apt-get -qq install -y --no-install-recommends $$rt >/dev/null

# Only looked at when something has to be compiled.
$(B)/.deps:
	$(Q)missing="$(call MISSING,)"; if [ -n "$$missing" ]; then \
		echo "missing packages: $$missing" >&2; echo "install them with: make deps" >&2; exit 1; fi
	@mkdir -p $(B) && touch $@

# --- libzns and its programs -------------------------------------------------------------------------------------
PROGRAMS	:= $(addprefix $(BIN)/,znsd znsctl znsctl-docker znsctl-probe znsctl-selftest zns-helper zns-runc zns-memkeep zns-mem)
zns: $(PROGRAMS)

# Both: whoever includes the header is built after it is made anew.
$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h: images/%.proto $(wildcard images/*.proto) | $(B)/.deps
	@mkdir -p $(GEN)
	$(call say,PROTO   $<)
	$(Q)protoc-c --proto_path=images --c_out=$(GEN) $<

$(GEN)/%.o: $(GEN)/%.c | $(PROTO_C)
	$(Q)$(CC) $(CPPFLAGS) $(OPT) $(SAN) -c -o $@ $<

# Of which sources a build is; only the programs' own main files have it, so a commit compiles little anew.
VERSION		:= $(GEN)/zns-version.h
.PHONY: FORCE
$(VERSION): FORCE
	$(Q)scripts/version $@
$(call objs,$(foreach p,ctl broker/requests helper docker mem/cmd keep/cmd,zns/$(p)/main.c) zns/selftest/cmd/report.c): $(VERSION)

$(ALL_OBJ) $(B)/test/crash/inproc.o: | $(PROTO_C)
ifeq ($(shell uname -m),x86_64)
$(B)/zns/base/hash_avx2.o: CFLAGS += -mavx2
$(B)/zns/base/hash_avx512.o: CFLAGS += -mavx512f
endif
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/zns/ctl/cmd_mount.o $(B)/zns/ctl/export_serve.o: CPPFLAGS += -isystem /usr/include/fuse3

$(B)/libzns.a: $(LIB_OBJ) $(PROTO_O)
	$(call say,AR      $@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BIN)/znsd: $(ZNSD_OBJ) $(B)/libzns.a
$(BIN)/znsctl: $(CTL_OBJ) $(DOCKER_OBJ) $(B)/libzns.a
$(B)/libctl.a: $(CTL_LIB_OBJ)
	$(call say,AR      $@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(BIN)/znsctl-docker: $(DOCKER_CMD_OBJ) $(B)/libctl.a $(DOCKER_OBJ) $(B)/libzns.a
$(BIN)/znsctl-probe: $(PROBE_CMD_OBJ) $(B)/libctl.a $(B)/libzns.a
$(BIN)/znsctl-selftest: $(SELFTEST_OBJ) $(CONFORM_OBJ) $(B)/libctl.a $(B)/libzns.a
$(BIN)/zns-runc: $(RUNC_OBJ) $(DOCKER_OBJ) $(B)/libzns.a
$(BIN)/zns-helper: $(HELPER_OBJ) $(B)/libzns.a
$(BIN)/zns-memkeep: $(MEMKEEP_OBJ) $(B)/libzns.a
$(BIN)/zns-mem: $(MEM_OBJ) $(B)/libzns.a
$(BIN)/znsctl: LDLIBS += $(FUSE_LIBS) -larchive
$(PROGRAMS):
	@mkdir -p $(@D)
	$(call say,LD      $@)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

# The same programs with test/controls inside, in a directory of their own: what a test uses that wants to make the
# emulator fail. Only the files of test/controls are compiled more.
.PHONY: test-bin
test-bin: $(TEST_PROGRAMS) $(B)/load/composer
$(TEST_LIB): $(TEST_OBJ) $(PROTO_O)
	@mkdir -p $(@D)
	$(call say,AR      $@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(TEST_BIN)/znsd: $(ZNSD_OBJ) $(TEST_LIB)
$(TEST_BIN)/znsctl: $(CTL_OBJ) $(DOCKER_OBJ) $(TEST_LIB)
$(TEST_BIN)/znsctl-probe: $(PROBE_CMD_OBJ) $(B)/libctl.a $(TEST_LIB)
$(TEST_BIN)/znsctl-selftest: $(SELFTEST_OBJ) $(CONFORM_OBJ) $(B)/libctl.a $(TEST_LIB)
$(TEST_BIN)/zns-helper: $(HELPER_OBJ) $(TEST_LIB)
$(TEST_BIN)/zns-mem: $(MEM_OBJ) $(TEST_LIB)
$(TEST_BIN)/zns-memkeep: $(MEMKEEP_OBJ) $(TEST_LIB)
$(TEST_BIN)/znsctl: LDLIBS += $(FUSE_LIBS) -larchive
# A broker of another build: its messages have another version.
NEXT		:= $(B)/test/next
$(NEXT)/dispatch.o: zns/broker/requests/dispatch.c zns/include/zns/broker.h $(B)/zns/broker/requests/dispatch.o
	@mkdir -p $(NEXT)/include/zns
	$(Q)sed 's/^\(#define ZNS_BROKER_VERSION\) .*/\1 77/' zns/include/zns/broker.h >$(NEXT)/include/zns/broker.h
	$(Q)$(CC) -I$(NEXT)/include $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(NEXT)/znsd: $(NEXT)/dispatch.o $(filter-out %/requests/dispatch.o,$(ZNSD_OBJ)) $(TEST_LIB)
$(TEST_PROGRAMS):
	@mkdir -p $(@D)
	$(call say,LD      $@)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

# --- criu: fetch, patch, add our files, build --------------------------------------------------------------------
criu: $(BIN)/criu $(BIN)/criu-zns
# Its name where it is installed.
$(BIN)/criu-zns: | $(BIN)/criu
	$(Q)ln -sf criu $@

$(CRIU_SRC)/.fetched: $(PATCHES) | $(B)/.deps
	$(call say,FETCH   CRIU into $(CRIU_SRC))
	$(Q)scripts/fetch-criu $(CRIU_SRC)
	@touch $@

$(BIN)/criu: $(CRIU_SRC)/.fetched $(ADAPTER) $(VERSION)
	@mkdir -p $(@D)
	$(call say,CRIU    $@)
	$(Q)cp -p criu/*.c criu/*.h $(CRIU_SRC)/criu/ && cp -p criu/include/*.h $(VERSION) $(CRIU_SRC)/criu/include/
	$(Q)PATH=$(SYS_PATH) $(MAKE) --no-print-directory -C $(CRIU_SRC) criu >$(B)/criu.log 2>&1 || \
		{ tail -40 $(B)/criu.log >&2; exit 1; }
	$(Q)cp $(CRIU_SRC)/criu/criu $@

# The same with a second witness of every image: criu/zns-tee.h. Only our files differ.
TEE		:= $(B)/tee
.PHONY: criu-tee interop tools
criu-tee: $(TEE)/criu/criu/criu
$(TEE)/criu/criu/criu: $(BIN)/criu
	$(call say,CRIU    $@)
	$(Q)rm -rf $(TEE) && mkdir -p $(TEE) && cp -a $(CRIU_SRC) $(TEE)/criu
	$(Q)rm -f $(TEE)/criu/criu/zns-*.o $(TEE)/criu/criu/criu
	$(Q)PATH=$(SYS_PATH) $(MAKE) --no-print-directory -C $(TEE)/criu USERCFLAGS=-DZNS_DEBUG criu >$(B)/tee.log 2>&1 || \
		{ tail -40 $(B)/tee.log >&2; exit 1; }

# --- tests -------------------------------------------------------------------------------------------------------
$(B)/test/test_print $(B)/test/test_flow: $(B)/test/%: test/unit/%.c $(B)/libctl.a $(B)/libzns.a
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(B)/libctl.a $(B)/libzns.a $(LDLIBS) -lcmocka

$(B)/test/test_docker: test/unit/test_docker.c $(DOCKER_OBJ) $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(DOCKER_OBJ) $(TEST_LIB) $(LDLIBS) -lcmocka

$(B)/test/%: test/unit/%.c $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(WRAP) -MMD -MP -MF $@.d -o $@ $< $(TEST_LIB) $(LDLIBS) -lcmocka

# Programs that run threads in virtual time: test/unit/vtime.h has what these calls become.
VTIME_WRAP	:= zns_mono_ns zns_hash zns_hash_pieces pthread_create pthread_join pthread_cond_wait \
		   pthread_cond_clockwait pthread_cond_signal pthread_cond_broadcast
$(B)/test/test_rates: WRAP = $(VTIME_WRAP:%=-Wl,--wrap=%)

# A kernel without openat2.
$(B)/test/test_safeopen: WRAP = -Wl,--wrap=syscall

# The control of verification.
$(B)/test/test_hot: WRAP = -Wl,--wrap=transform_in

# Every seal of a unit is counted.
$(B)/test/test_crypt_stripe: WRAP = -Wl,--wrap=zns_crypt_seal_unit

# One suite for every kind of device; DEV=… runs it on a real one (all its data are lost).
CONFORM_SRC	:= $(wildcard test/conformance/*.c)
$(B)/test/dev_conform: $(CONFORM_SRC) test/conformance/state.h $(wildcard zns/selftest/*.h) $(CONFORM_OBJ) $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      test/conformance)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $(CONFORM_SRC) $(CONFORM_OBJ) $(TEST_LIB) $(LDLIBS)

# The emulator as a block device of the kernel, for guests.
$(B)/test/ublk_export: test/vm/ublk_export.c test/vm/ublk_abi.h $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(TEST_LIB) $(LDLIBS)

conform: $(B)/test/dev_conform zns
	$(Q)$(if $(DEV),$(B)/test/dev_conform $(DEV) --yes-destroy,test/conformance/emu.sh $(B))

# Power cuts by enumeration; the broker's code runs inside, all of it but the poll loop.
CRASH_SRC	:= $(wildcard test/crash/*.c)
$(B)/test/crash: $(CRASH_SRC) $(wildcard test/crash/*.h) $(filter-out %/main.o %/conn.o %/server.o %/startup.o,$(ZNSD_OBJ)) $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      test/crash)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $(CRASH_SRC) $(filter-out %/main.o %/conn.o %/server.o %/startup.o,$(ZNSD_OBJ)) $(TEST_LIB) $(LDLIBS)

# A dump without a task, for loads: test/load.
$(B)/load/dumper $(B)/load/composer: $(B)/load/%: test/load/%.c $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(TEST_LIB) $(LDLIBS)

$(B)/load/spinner: test/load/spinner.c
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE $(CFLAGS) -o $@ $< -lpthread

# kill -9 of criu, helper, broker and znsctl under real dumps, restores and compaction; KILLS of them all together.
KILLS		?= 500
.PHONY: kill-load
kill-load: $(B)/load/dumper $(B)/load/spinner all
	$(Q)PATH=$(SYS_PATH) python3 test/load/kill_load.py --build $(B) --kills $(KILLS) $(if $(SEED),--seed $(SEED))

# kill -9 of processes with leases and of brokers, under load.
KILL_HOLDERS	?= 100
KILL_BROKERS	?= 50
kill: $(B)/load/dumper zns
	$(Q)PATH=$(SYS_PATH) python3 test/load/kill.py --build $(B) --holders $(KILL_HOLDERS) --brokers $(KILL_BROKERS)

# A thousand containers with one small checkpoint each, and a device with 14 active zones; beside what came without
# pack zones.
scale-small: $(B)/load/dumper all
	$(Q)PATH=$(SYS_PATH) python3 test/load/crowd.py --build $(B) --control --criu 20 --report $(B)/report/scale-small.json

# 29,172 zones, 1,000 containers, up to 10,000 checkpoints: how start, ls, admission, rm, gc and memory grow.
scale: $(B)/load/dumper all
	$(Q)PATH=$(SYS_PATH) python3 test/load/scale.py --build $(B) --report $(B)/report/scale.json

CRASH_STATES	?= 100000
CRASH_CUTS	?= 200
crash: $(B)/test/crash all test-bin
	$(Q)test/crash/run $(B) $(CRASH_STATES) $(CRASH_CUTS)

unit: $(UNIT_BIN) zns test-bin
	$(Q)ZNS_LIBEXEC=$(CURDIR)/$(BIN) /usr/bin/python3 test/harness/units.py $(UNIT_BIN)

unit-refused: $(B)/test/test_mem_refused $(UNIT_BIN)
	$(Q)timeout 900 $<
	$(Q)timeout 900 $(B)/test/test_mem_moves meeting

zonetests: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/zonetests.py run -a --report $(B)/report/zonetests

errors: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/errors.py run -a --report $(B)/report/errors

.PHONY: options crit
crit: all rpc-clients
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/crit.py run -a --report $(B)/report/crit

options: all test-bin $(CLIENTS)/plugin/testplugin.so
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/options.py run -a --report $(B)/report/options

# What an attacker can choose: names, links, FIFOs, locks, lengths, records with right checksums.
.PHONY: hostile
hostile: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/hostile/hostile.py run -a -j2 --report $(B)/report/hostile

# Encryption at rest: real processes, errors, tools.
crypt: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/crypt.py run -a --report $(B)/report/crypt

.PHONY: compact
compact: all test-bin $(B)/bench/scatter
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/compact.py run -a --report $(B)/report/compact

# Encryption, chains, compaction, flatten, erasure, rotation on one device, with accidents in between.
.PHONY: together
together: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/together.py run -a --report $(B)/report/together

tools: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/tools.py run -a --report $(B)/report/tools

# Metrics, top, report, dashboards, the journal. promtool is unpacked, not installed.
.PHONY: observe
observe: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/observe/observe.py run -a --report $(B)/report/observe

# The report's page in chromium, which takes 300 MB: no part of `make test`.
.PHONY: deps-browser observe-browser
deps-browser: deps
	$(Q)$(call install,chromium fonts-dejavu-core)
observe-browser: deps-browser
	$(Q)$(MAKE) --no-print-directory all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/observe/browser.py run -a --report $(B)/report/observe-browser

chains: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/chains.py run -a --report $(B)/report/chains

# OCI images. With a registry (skopeo, docker-registry): `make registry`.
.PHONY: oci registry
oci: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/oci.py run -a --report $(B)/report/oci

registry: all test-bin
	$(Q)$(call install,$(DEB_REGISTRY))
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/registry.py run -a --report $(B)/report/registry

# Many restores of one checkpoint at once, each in namespaces of its own; make test has all but the two that wait for a while.
.PHONY: restores
restores: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/restores.py run -a --report $(B)/report/restores-suite

.PHONY: composed
composed: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/composed.py run -a --report $(B)/report/composed

# Running programs whose memory is on zones; MEMORY_ROUNDS units out of one that checks every page.
MEMORY_ROUNDS	?= 10000
.PHONY: memory memory-soak
memory: all test-bin
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memory.py run -a --build $(B)
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memoryapps.py run -a --build $(B)
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/hibernate.py run -a --build $(B)
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memoryrestore.py run -a --build $(B)
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memorypolicy.py run -a --build $(B)
.PHONY: memory-checkpoint
memory-checkpoint: all test-bin
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memcheckpoint.py run -a --build $(B)
# Programs whose memory on zones is encrypted: what stands there, what comes back, kills, rotation, erasure.
.PHONY: memory-crypt
memory-crypt: all test-bin $(B)/test/test_mem $(B)/test/test_mem_death
	$(Q)for t in test_mem test_mem_death; do ZNS_TEST_MEM_ENCRYPT=1 timeout 900 $(B)/test/$$t || exit 1; done
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memcrypt.py run -a --build $(B)
memory-soak: all test-bin $(B)/test/test_mem $(B)/test/test_mem_late $(B)/test/test_mem_direct
	$(Q)for t in test_mem "test_mem_late restarting" "test_mem_direct reading"; do \
		ZNS_TEST_MEM_UNITS=$(MEMORY_ROUNDS) timeout 3600 $(B)/test/$$t || exit 1; done
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memory.py run soak deaths redis node java go \
		--rounds $(MEMORY_ROUNDS) --units $(MEMORY_ROUNDS) --build $(B)
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memoryapps.py run postgresql java_g1 nginx --units $(MEMORY_ROUNDS) --build $(B)
# Pager, keeper and broker are killed while a unit is in each of its states: ten minutes.
.PHONY: memory-kills
memory-kills: all test-bin
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memorykills.py run -a --build $(B)

.PHONY: guard
guard: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/guard.py run -a --report $(B)/report/guard

# Dumps of tasks that run on; LIVE_DUMPS of programs that never stop to write, each restored and checked.
LIVE_DUMPS	?= 1000
.PHONY: livedump live-controls live-soak
livedump: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/livedump.py run -a --report $(B)/report/livedump
live-controls: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/livecontrols.py run -a --report $(B)/report/livecontrols
live-soak: all
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/livedump.py soak --dumps $(LIVE_DUMPS)

# Live dumps of Redis, PostgreSQL, JVMs and Node.js under load, each page compared; LIVE_APP_DUMPS of each.
LIVE_APP_DUMPS	?= 20
.PHONY: live-apps
live-apps: all
	$(Q)LIVE_APP_DUMPS=$(LIVE_APP_DUMPS) PATH=$(SYS_PATH) python3 test/zonetests/liveapps.py run -a --timeout 120 --report $(B)/report/liveapps

# kill -9 of criu, helper and broker at every message of a live dump; LIVE_KILL_EVERY=3: at each third one.
LIVE_KILL_EVERY	?= 1
.PHONY: live-kill
live-kill: all
	$(Q)LIVE_KILL_EVERY=$(LIVE_KILL_EVERY) PATH=$(SYS_PATH) python3 test/zonetests/livekill.py run -a --timeout 120 --report $(B)/report/livekill

# Chains with dirty tracking by the helper; in a guest with soft-dirty bits they are a part of test-vm.
incremental: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/incremental.py run -a --report $(B)/report/incremental

STEPS_MB	?= 1024
bench-steps: all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/steps.py --size $(STEPS_MB)

# Needs a kernel that tracks dirty memory: in a guest. Its disks are the host's page cache.
INCREMENTAL_MB	?= 1024
bench-incremental: all deps-vm
	$(Q)scripts/vm/build-guest >/dev/null && make -s -C test/zonetests && VM_MEM=5G scripts/vm/run 6.12 \
		test/vm/incremental-bench.sh --timeout 3500 --devices disk:work,size=16G -- $(INCREMENTAL_MB)

# Restore of a chain beside stock's from files, here: a full dump is taken apart.
CHAIN_MB	?= 1024
.PHONY: bench-chain
bench-chain: all
	$(Q)scripts/zdtm-sample --stock-only >/dev/null
	$(Q)PATH=$(SYS_PATH) python3 test/bench/chain.py --size $(CHAIN_MB)

# The same for live migration in rounds.
LIVE_MB		?= 64
bench-live: all deps-vm
	$(Q)scripts/vm/build-guest >/dev/null && make -s -C test/zonetests && scripts/vm/run 6.12 test/vm/live-bench.sh \
		--timeout 3500 --devices disk:work,size=8G -- $(LIVE_MB)

# Rounds without soft-dirty bits; `make test` has a part of them (scripts/test-all).
rounds: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/rounds.py run -a --report $(B)/report/rounds

migration: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/migration.py run -a --report $(B)/report/migration

.PHONY: firstpages
firstpages: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/firstpages.py run -a --report $(B)/report/firstpages

# Export and import beside stock CRIU and its crit, with a witness of every image.
interop: all criu-tee
	$(Q)scripts/zdtm-sample --stock-only >/dev/null
	$(Q)PATH=$(SYS_PATH) $(MAKE) --no-print-directory -C $(B)/zdtm/stock lib >$(B)/stock-lib.log 2>&1 || \
		{ tail -20 $(B)/stock-lib.log >&2; exit 1; }
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/interop.py run -a --report $(B)/report/interop

# CRIU's clients: stock libcriu and pycriu of the same tarball, our pycriu, and a program for libcriu.
CLIENTS		:= $(B)/clients
.PHONY: rpc rpc-clients rpc-go
$(B)/stock-lib/.built: criu/base | $(B)/.deps
	$(call say,CRIU    stock libcriu and pycriu)
	$(Q)scripts/fetch-criu --plain $(B)/stock-lib
	$(Q)PATH=$(SYS_PATH) $(MAKE) --no-print-directory -C $(B)/stock-lib lib crit >$(B)/stock-lib.log 2>&1 || \
		{ tail -20 $(B)/stock-lib.log >&2; exit 1; }
	@touch $@
$(CLIENTS)/.ours: $(BIN)/criu
	@mkdir -p $(@D)
	$(Q)PATH=$(SYS_PATH) $(MAKE) --no-print-directory -C $(CRIU_SRC) lib >$(B)/our-lib.log 2>&1 || \
		{ tail -20 $(B)/our-lib.log >&2; exit 1; }
	@touch $@
$(CLIENTS)/libcriu: test/clients/libcriu.c $(B)/stock-lib/.built
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CFLAGS) -I$(B)/stock-lib/lib/c -I$(B)/stock-lib/images -idirafter $(B)/stock-lib/criu/include -o $@ $< \
		$(B)/stock-lib/lib/c/libcriu.a -lprotobuf-c
# A plugin with files of its own.
$(CLIENTS)/plugin/testplugin.so: test/clients/plugin.c $(CRIU_SRC)/.fetched
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CFLAGS) -fPIC -shared -idirafter $(CRIU_SRC)/criu/include -o $@ $<
rpc-clients: $(CLIENTS)/libcriu $(CLIENTS)/.ours $(CLIENTS)/plugin/testplugin.so

# go-criu comes through Go's module proxy, its hashes are in go.sum; any Go from 1.16 will do.
GO		:= $(shell command -v go || echo go)
rpc-go: $(CLIENTS)/go-client
$(CLIENTS)/go-client: $(wildcard test/clients/go/*)
	@mkdir -p $(@D)
	$(Q)command -v $(GO) >/dev/null || { echo "  APT     golang-go"; \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends golang-go >/dev/null; }
	$(call say,GO      test/clients/go)
	$(Q)cd test/clients/go && $$(command -v $(GO) || echo go) build -o $(abspath $@) .

# For test/docker/podman.py; it wants a newer Go than Debian 12 has.
.PHONY: checkpointctl
checkpointctl: $(CLIENTS)/checkpointctl
$(CLIENTS)/checkpointctl:
	@mkdir -p $(@D)
	$(Q)GOBIN=$(abspath $(@D)) $(GO) install github.com/checkpoint-restore/checkpointctl@v1.6.0

# The patches that mend CRIU itself, each alone on a release, beside stock: some minutes of builds.
.PHONY: upstream
upstream: deps all
	$(Q)PATH=$(SYS_PATH) python3 test/upstream/run.py

rpc: all test-bin rpc-clients rpc-go
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/rpc.py run -a --report $(B)/report/rpc

test: deps deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all test-bin rpc-clients $(B)/bench/scatter
	$(Q)scripts/test-all $(B)

# What README tells a newcomer to do, in a Debian that has git and make only; RELEASE=12 or 13, one after the other without.
# BARE="COMMAND" runs that in the clone instead of `make demo && make test`.
RELEASE		?= 12 13
BARE		?=
.PHONY: test-bare
test-bare: deps-bare
	$(Q)rc=0; for r in $(RELEASE); do scripts/bare-root --release $$r $(if $(BARE),'$(BARE)') || rc=1; done; exit $$rc

# A guest for each kernel, all at once; VM="--kernels 6.12 test/vm/20-conformance.test.sh" runs less.
VM		?=
# What 67-track, 68-memory and 69-memory-late run.
VM_UNITS := test_track $(addprefix test_track_,calls race stop) test_mem $(addprefix test_mem_,hold reach moves late direct hiber death)
test-vm: deps-vm
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all test-bin $(B)/test/dev_conform $(B)/test/ublk_export \
		$(DRIVE_SO) $(addprefix $(B)/test/,$(VM_UNITS))
	$(Q)PATH=$(SYS_PATH) scripts/vm/test-vm $(VM)

demo: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)scripts/demo

include test/bench/bench.mk
include test/drive/drive.mk

# A Docker daemon of its own; the containers' programs are downloaded as packages and unpacked, not installed.
test-docker: deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/docker/docker.py run -a
	$(Q)PATH=$(SYS_PATH) python3 test/docker/hibernate.py run -a
	$(Q)PATH=$(SYS_PATH) python3 test/docker/paging.py run -a

# docker.py alone, with the Docker and the containerd of a later Debian, unpacked; no container has a network namespace of its own there.
DOCKER_SUITE	?= forky
.PHONY: test-docker-newer
test-docker-newer: deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) DOCKER_SUITE=$(DOCKER_SUITE) python3 test/docker/docker.py run -a

test-podman: deps-docker
	$(Q)$(call install,podman $(DEB_REGISTRY))
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)scripts/zdtm-sample --stock-only >/dev/null
	$(Q)PATH=$(SYS_PATH) python3 test/docker/podman.py

# CheckpointContainer: containerd 2.1 of a later suite, unpacked; crictl from the Go module proxy.
test-cri: deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/docker/cri.py

# A kubelet and containerd, built from their Go modules below build/docker (KUBELET_ARGS: cases, --keep).
KUBELET_ARGS	?= -a
.PHONY: test-kubelet
test-kubelet: deps-docker
	$(Q)$(call install,$(DEB_REGISTRY) $(DEB_KUBELET))
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/kubelet/kubelet.py run $(KUBELET_ARGS)

# docker checkpoint and start, stock runtime against ours; needs 17 GB in TMPDIR (/var/tmp).
bench-docker: deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/docker.py --report $(B)/report/bench-docker

# Many containers from one checkpoint at once; BENCH_DOCKER_CLONES="-n 1 --counts 45" and the like.
.PHONY: bench-docker-clones
bench-docker-clones: deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/docker_clones.py --report $(B)/report/bench-docker-clones $(BENCH_DOCKER_CLONES)

# The five containers alone and at once: stock runtime, ours, ours on the timing model, and the control.
FIVE_ROUNDS	?= 5
bench-docker-five: deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/docker_five.py --rounds $(FIVE_ROUNDS) --report $(B)/report/bench-docker-five

# All of zdtm in three flavours, every image on zones, beside stock CRIU: some 40 minutes.
ZDTM		?=
zdtm: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)scripts/zdtm-sample --all --report $(B)/report/zdtm $(ZDTM)

# CRIU's own tests with their pages through a page server, and on demand, beside stock.
zdtm-migration: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)for way in page-server lazy-pages remote-lazy-pages; do scripts/zdtm-sample --zones -f h -l test/zdtm/migration.txt --way $$way \
		--report $(B)/report/zdtm-$$way || exit 1; done

# Pre-dumps and chains of dumps of zdtm's programs, beside stock: in a guest, for dirty tracking.
ITERATIVE	?=
.PHONY: zdtm-iterative
zdtm-iterative: deps-vm
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) scripts/vm/zdtm-iterative $(ITERATIVE)

zdtm-sample: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)scripts/zdtm-sample --zones

# A minute of it, for `make test`.
zdtm-smoke: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)scripts/zdtm-sample --zones -l test/zdtm/smoke.txt --report $(B)/report/zdtm-smoke

# The library is built once more, by clang, with the fuzzer's and the sanitizers' instrumentation.
FUZZ_SAN	:= -fsanitize=address,undefined -fno-sanitize-recover=undefined
FUZZ_LIB	:= $(B)/libfuzzed.a
OCI_READ	:= $(addprefix $(B)/zns/ctl/,oci.o oci_read.o sha.o flow.o)
$(FUZZ_LIB): $(TEST_OBJ) $(PROTO_O) $(filter-out %/main.o %/conn.o %/server.o %/startup.o,$(ZNSD_OBJ)) $(B)/test/crash/inproc.o \
	     $(B)/zns/keep/cmd/context.o $(OCI_READ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(B)/fuzz/%: test/fuzz/%.c $(FUZZ_LIB)
	@mkdir -p $(@D)
	$(call say,FUZZ    $<)
	$(Q)$(CC) $(CPPFLAGS) -g -O1 -fsanitize=fuzzer $(FUZZ_SAN) -o $@ $< $(FUZZ_LIB) $(LDLIBS)

# The corpus in the repository as unit tests: the same targets without the fuzzer, any compiler.
REPLAY_BIN	:= $(patsubst test/fuzz/fuzz_%.c,$(B)/replay/fuzz_%,$(wildcard test/fuzz/fuzz_*.c))
REPLAY_OBJ	= $(filter-out %/main.o %/conn.o %/server.o %/startup.o,$(ZNSD_OBJ))
REPLAY_SRC	:= test/fuzz/replay.c test/crash/inproc.c
$(B)/replay/fuzz_memkeep: REPLAY_MORE = $(B)/zns/keep/cmd/context.o
$(B)/replay/fuzz_memkeep: $(B)/zns/keep/cmd/context.o
$(B)/replay/fuzz_oci: REPLAY_MORE = $(OCI_READ)
$(B)/replay/fuzz_oci: $(OCI_READ)
$(REPLAY_BIN): $(B)/replay/%: test/fuzz/%.c $(REPLAY_SRC) $(REPLAY_OBJ) $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(REPLAY_SRC) $(REPLAY_OBJ) $(REPLAY_MORE) $(TEST_LIB) $(LDLIBS)

.PHONY: fuzz-replay
fuzz-replay: $(REPLAY_BIN)
	$(Q)p=0 f=0; for t in $(REPLAY_BIN); do \
		if $$t test/fuzz/corpus/$${t##*/} >$$t.out 2>$$t.err; then p=$$((p + 1)); tail -1 $$t.out; \
		else f=$$((f + 1)); echo "FAIL $$t: $$(tail -3 $$t.err)"; fi; done; \
	echo "$$p passed, $$f failed, 0 skipped"; [ $$f = 0 ]

# Composed images beside plain ones: how fast they are read.
.PHONY: bench-composed
$(B)/bench/composed: test/bench/composed.c $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(TEST_LIB) $(LDLIBS) -lcmocka
bench-composed: $(B)/bench/composed
	$(Q)$(B)/bench/composed

# Policies of memory on zones, by recorded traces (Documentation/memory-policy.md). sim-traces records them anew: some 15 minutes.
SIM_BIN		:= $(B)/sim/touched $(B)/sim/cached
.PHONY: sim-traces sim-policy sim-check
$(B)/sim/%: test/sim/%.c $(B)/libzns.a
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(B)/libzns.a $(LDLIBS)
sim-traces: $(SIM_BIN)
	$(Q)PATH=$(SYS_PATH) python3 test/sim/record.py --build $(B)
sim-policy:
	$(Q)PATH=$(SYS_PATH) python3 test/sim/policy.py --report $(B)/report/policy
sim-check: $(SIM_BIN)
	$(Q)PATH=$(SYS_PATH) python3 test/sim/policy.py selftest
	$(Q)PATH=$(SYS_PATH) python3 test/sim/record.py --build $(B) check

BENCH_BIN	:= $(B)/bench/emu_table $(B)/bench/emu_seq
$(BENCH_BIN): $(B)/bench/%: test/bench/%.c test/bench/emu_drive.h $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(TEST_LIB) $(LDLIBS)

# The emulator against its own parameters (model time), and against the plain disk (timing off).
bench-emu: $(BENCH_BIN)
	$(Q)$(B)/bench/emu_table && $(B)/bench/emu_seq

# The probe on emulated drives whose maps are known; PROBE_ARGS=--quick leaves out those of several GB.
bench-probe: zns test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/bench/probe_accuracy.py --report $(B)/report/probe $(PROBE_ARGS)
	$(Q)$(MAKE) bench-probe-noise

# And while disturbances hit everything for a while: right, refused, wrong. SEEDS runs of each drive with each noise; SEEDS=4-12: these.
.PHONY: bench-probe-noise
bench-probe-noise: $(B)/test/test_probe_noise
	$(Q)mkdir -p $(B)/report/probe
	$(Q)set -o pipefail; $< table $(or $(SEEDS),3) 2>$(B)/report/probe/noise.log | tee $(B)/report/probe/noise.md

# Seconds for each; the corpus is kept, so that the next run goes on where this one ended.
FUZZ_SECONDS	?= 60
fuzz: deps-clang
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) B=$(B)/fuzzed CC=clang OPT="-g -O1" \
		SAN="-fsanitize=fuzzer-no-link $(FUZZ_SAN)" fuzz-build
	$(Q)scripts/fuzz-all $(B) $(FUZZ_SECONDS)
fuzz-build: $(FUZZ_BIN)

# The stripe writer's lock rules are in its code (zns/stripe/write/lock.h); clang alone can read them.
lint: deps-clang zns test-bin
	$(Q)scripts/check/circles.py $(B) --limits
	$(Q)scripts/check/controls $(B)
	$(Q)scripts/check/layers $(B) --check
	$(Q)scripts/check/cites
	$(Q)scripts/check/papers >/dev/null
	$(Q)scripts/check/format
	$(Q)for f in zns/stripe/write/*.c; do \
		clang $(CPPFLAGS) -std=gnu11 -Wthread-safety -Werror=thread-safety -fsyntax-only $$f || exit 1; done
	$(Q)clang-tidy --quiet $(filter-out %_avx2.c,$(wildcard zns/*/*.c zns/*/*/*.c test/controls/*.c)) -- $(CPPFLAGS) -isystem /usr/include/fuse3 -std=gnu11 2>/dev/null
	$(Q)[ $$(uname -m) != x86_64 ] || clang-tidy --quiet $(wildcard zns/*/*_avx2.c) -- $(CPPFLAGS) -std=gnu11 -mavx2 2>/dev/null

# --- documentation and installation ------------------------------------------------------------------------------
MAN		:= $(patsubst Documentation/%.txt,$(B)/man/%,$(wildcard Documentation/*.[18].txt))
man: deps-doc
	$(Q)$(MAKE) --no-print-directory man-pages
man-pages: $(MAN)
$(B)/man/%: Documentation/%.txt
	@mkdir -p $(@D)
	$(Q)export PATH=$(SYS_PATH); asciidoc -b docbook -d manpage -o $@.xml $< && xmlto --skip-validation man -o $(@D) $@.xml 2>/dev/null && rm -f $@.xml

PREFIX		?= /usr/local
LIBEXEC		:= $(PREFIX)/libexec/zns-criu
UNITDIR		?= $(PREFIX)/lib/systemd/system
BASHDIR		?= $(PREFIX)/share/bash-completion/completions
ZSHDIR		?= $(PREFIX)/share/zsh/site-functions
install: all man
	$(Q)$(MAKE) --no-print-directory install-files

.PHONY: man-pages install-files tests-installable install-tests
install-files:
	install -d $(addprefix $(DESTDIR),$(PREFIX)/bin $(LIBEXEC) $(PREFIX)/share/man/man8 $(UNITDIR) $(BASHDIR) $(ZSHDIR))
	install $(addprefix $(BIN)/,criu znsd zns-helper zns-runc zns-memkeep zns-mem znsctl-docker znsctl-probe znsctl-selftest) scripts/gc-cri scripts/cri-image $(DESTDIR)$(LIBEXEC)
	install $(BIN)/znsctl $(DESTDIR)$(PREFIX)/bin
	ln -sf ../libexec/zns-criu/criu $(DESTDIR)$(PREFIX)/bin/criu-zns
	for u in systemd/*; do sed 's,@BINDIR@,$(PREFIX)/bin,; s,@LIBEXEC@,$(LIBEXEC),' $$u >$(DESTDIR)$(UNITDIR)/$$(basename $$u); done
	install -m 644 completion/znsctl.bash $(DESTDIR)$(BASHDIR)/znsctl
	install -m 644 completion/_znsctl $(DESTDIR)$(ZSHDIR)
	install -d $(DESTDIR)$(PREFIX)/share/zns-criu/grafana
	install -m 644 grafana/zns-criu.json $(DESTDIR)$(PREFIX)/share/zns-criu/grafana
	install -m 644 $(B)/man/*.8 $(DESTDIR)$(PREFIX)/share/man/man8

# Tests of a device for who has no checkout.
tests-installable: $(B)/test/dev_conform
TESTS		:= $(LIBEXEC)/tests
install-tests: tests-installable
	install -d $(addprefix $(DESTDIR)$(TESTS)/,bin test old)
	ln -sf ../../../../bin/znsctl $(DESTDIR)$(TESTS)/bin/znsctl
	install $(B)/test/dev_conform $(DESTDIR)$(TESTS)/test
	install test/conformance/emu.sh $(DESTDIR)$(TESTS)/conform-emulated
	install test/old/read $(DESTDIR)$(TESTS)/old
	install -m 644 $(wildcard test/old/*.tar.xz) $(DESTDIR)$(TESTS)/old

uninstall:
	rm -rf $(DESTDIR)$(LIBEXEC) $(DESTDIR)$(PREFIX)/share/zns-criu
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(wildcard systemd/*)))
	rm -f $(DESTDIR)$(PREFIX)/bin/znsctl $(DESTDIR)$(PREFIX)/bin/criu-zns $(DESTDIR)$(BASHDIR)/znsctl $(DESTDIR)$(ZSHDIR)/_znsctl
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/man/man8/,$(notdir $(MAN)) zns-helper.8)

# Debian packages of this release, in build/deb. The files that git knows are built apart.
.PHONY: deb deps-deb test-deb
deps-deb:
	$(Q)$(call install,$(DEB_PACKAGE) $(DEB_DOC))
deb: deps-deb
	$(Q)PATH=$(SYS_PATH) scripts/make-deb

# The packages alone in bare roots: README's words, an upgrade under a running broker, removal; RELEASE as for test-bare.
test-deb: deps-bare
	$(Q)rc=0; for r in $(RELEASE); do scripts/test-deb $$r || rc=1; done; exit $$rc

clean:
	rm -rf $(B)

-include $(ALL_OBJ:.o=.d) $(UNIT_BIN:%=%.d)
