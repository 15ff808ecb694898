# SPDX-License-Identifier: GPL-2.0-only
# How the programs are built that the suites run (suites.mk): unit tests, loads, clients, fuzzers.

OCI_READ	:= $(addprefix $(B)/zns/oci/,oci.o oci_read.o sha.o flow.o)
$(B)/test/test_flow: CTL_MORE = $(OCI_READ) $(B)/zns/transfer/patience.o
$(B)/test/test_flow: $(OCI_READ) $(B)/zns/transfer/patience.o
PRINT_MORE	:= $(addprefix $(B)/zns/,memory/ctl/memory_print.o defrag/layout.o defrag/layout_print.o)
$(B)/test/test_print: CTL_MORE = $(PRINT_MORE)
$(B)/test/test_print: $(PRINT_MORE)
$(B)/test/test_print $(B)/test/test_flow: $(B)/test/%: test/unit/%.c $(B)/libctl.a $(B)/libzns.a
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(UNIT_OPT) -MMD -MP -MF $@.d -o $@ $< $(CTL_MORE) $(B)/libctl.a $(B)/libzns.a $(LDLIBS) -lcmocka

OCI_UNIT	:= $(OCI_READ) $(B)/zns/oci/skopeo.o $(B)/zns/transfer/patience.o
$(B)/test/test_oci: test/unit/test_oci.c $(OCI_UNIT) $(B)/libctl.a $(B)/libzns.a
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) -isystem /usr/include/fuse3 $(CFLAGS) $(UNIT_OPT) -Wl,--wrap=fuse_get_context,--wrap=export_layer -MMD -MP -MF $@.d \
		-o $@ $< $(OCI_UNIT) $(B)/libctl.a $(B)/libzns.a $(LDLIBS) -larchive $(FUSE_LIBS) -lcmocka

$(B)/test/test_suspend: test/unit/test_suspend.c $(DOCKER_OBJ) $(B)/libctl.a $(B)/libzns.a
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(UNIT_OPT) -Wl,--wrap=docker_api_call -MMD -MP -MF $@.d -o $@ $< $(DOCKER_OBJ) $(B)/libctl.a $(B)/libzns.a $(LDLIBS) -lcmocka

$(B)/test/test_docker $(B)/test/test_compare $(B)/test/test_resume: $(B)/test/%: test/unit/%.c $(DOCKER_OBJ) $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(UNIT_OPT) -MMD -MP -MF $@.d -o $@ $< $(DOCKER_OBJ) $(TEST_LIB) $(LDLIBS) -lcmocka

# Unlocking without the lock: test/controls/locks.c.
LOCK_WRAP	:= -Wl,--wrap=pthread_mutex_unlock,--wrap=pthread_cond_wait
$(B)/test/%: test/unit/%.c $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(UNIT_OPT) $(WRAP) $(LOCK_WRAP) -MMD -MP -MF $@.d -o $@ $< $(MORE_OBJ) $(TEST_LIB) $(LDLIBS) -lcmocka

# Programs that run threads in virtual time: test/unit/vtime.h has what these calls become.
VTIME_WRAP	:= zns_mono_ns zns_hash zns_hash_pieces pthread_create pthread_join pthread_cond_wait \
		   pthread_cond_clockwait pthread_cond_signal pthread_cond_broadcast
$(B)/test/test_rates $(B)/test/test_weights: WRAP = $(VTIME_WRAP:%=-Wl,--wrap=%)

# A kernel without openat2.
$(B)/test/test_safeopen: WRAP = -Wl,--wrap=syscall

# The control of verification.
$(B)/test/test_hot: WRAP = -Wl,--wrap=transform_in

# Every seal of a unit is counted.
$(B)/test/test_crypt_stripe: WRAP = -Wl,--wrap=zns_crypt_seal_unit

# What is written and synced, and commands to a drive.
DURABLE_WRAP	:= -Wl,--wrap=pwritev64v2,--wrap=fdatasync,--wrap=nvme_run
$(B)/test/test_durable: WRAP = $(DURABLE_WRAP)

# Events that come late, or in another order.
$(B)/test/test_mem_forked: WRAP = -Wl,--wrap=read,--wrap=ioctl
$(B)/test/test_mem_policy: WRAP = -Wl,--wrap=ioctl
$(B)/test/test_mem_moves $(B)/test/test_mem_guest: WRAP = -Wl,--wrap=read

# What a key's memory holds when it goes, and nonces.
$(B)/test/test_crypt: WRAP = -Wl,--wrap=munmap,--wrap=aead_seal

# Allocations that fail.
NOMEM_WRAP	:= malloc calloc realloc aligned_alloc strdup posix_memalign
$(B)/test/test_nomem: WRAP = $(NOMEM_WRAP:%=-Wl,--wrap=%)

# The helper; these have one of its files in themselves.
$(foreach t,commit send images live_rounds,$(eval $(B)/test/test_$t $(CORE)/test/test_$t: $(filter-out %/main.o %/$t.o,$(HELPER_OBJ))))
$(foreach t,commit send images live_rounds,$(eval $(B)/test/test_$t $(CORE)/test/test_$t: MORE_OBJ = $(filter-out %/main.o %/$t.o,$(HELPER_OBJ))))
IMAGES_WRAP	:= zns_writer_image zns_wimage_from_fd zns_wimage_data zns_wimage_mem zns_wimage_settle zns_wimage_seal zns_wimage_set_beside \
		   zns_writer_unsteady live_fill_pagemap charge_container charge_end dump_fail dump_check
ROUNDS_WRAP	:= live_look zns_track_arm zns_track_barrier zns_track_free live_open_part live_copy zns_wimage_seal dump_check live_hopeless \
		   live_give_up zns_save_room
$(B)/test/test_live_rounds $(CORE)/test/test_live_rounds: WRAP = $(ROUNDS_WRAP:%=-Wl,--wrap=%)
$(B)/test/test_images $(CORE)/test/test_images: WRAP = $(IMAGES_WRAP:%=-Wl,--wrap=%)

# Files of criu's adapter, as criu's build made them. What else is criu's, a test has itself, or does not reach.
ADAPTER_OBJ	:= $(addprefix $(CRIU_SRC)/criu/zns-,freeze.o settings.o pages.o lazy.o first.o tmpfs.o)
ADAPTER_UNIT	:= $(addprefix -iquote $(CRIU_SRC)/,criu/include include images criu/arch/x86/include .) -I$(CRIU_SRC)/compel/include/uapi -DCONFIG_X86_64 \
		   -no-pie -Wl,--unresolved-symbols=ignore-all
ADAPTER_WRAP	:= socket send recv malloc calloc realloc syscall
$(B)/test/test_adapter $(B)/test/test_adapter_holder: $(BIN)/criu
$(B)/test/test_adapter: WRAP = $(ADAPTER_UNIT) $(ADAPTER_WRAP:%=-Wl,--wrap=%)
$(B)/test/test_adapter: MORE_OBJ = $(ADAPTER_OBJ)
$(B)/test/test_adapter_holder: WRAP = $(ADAPTER_UNIT) -Wl,--wrap=realloc,--wrap=mmap64
$(B)/test/test_adapter_holder: MORE_OBJ = $(CRIU_SRC)/criu/zns-holder.o

# A status that cannot be had; writes of a probe.
$(B)/test/test_mem_control: WRAP = -Wl,--wrap=zns_mem_status
$(B)/test/test_probe_crowd: WRAP = -Wl,--wrap=probe_write_units

# The core's tests, linked without the packages (make core). The others are of a package, or of criu's adapter.
PACKAGE_UNITS	:= test_mem% test_dram test_pages% test_origin test_naming test_docker test_suspend test_compare test_resume test_probe% test_flow test_stream test_scatter test_oci test_print test_report \
		   test_adapter%
CORE_UNITS	:= $(filter-out $(PACKAGE_UNITS),$(patsubst test/unit/%.c,%,$(wildcard test/unit/test_*.c)))
$(CORE)/test/%: test/unit/%.c $(CORE)/test/libzns.a
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(UNIT_OPT) $(WRAP) -MMD -MP -MF $@.d -o $@ $< $(MORE_OBJ) $(CORE)/test/libzns.a $(LDLIBS) -lcmocka
$(CORE)/test/test_rates $(CORE)/test/test_weights: WRAP = $(VTIME_WRAP:%=-Wl,--wrap=%)
$(CORE)/test/test_crypt: WRAP = -Wl,--wrap=munmap,--wrap=aead_seal
$(CORE)/test/test_nomem: WRAP = $(NOMEM_WRAP:%=-Wl,--wrap=%)
$(CORE)/test/test_durable: WRAP = $(DURABLE_WRAP)
$(CORE)/test/test_safeopen: WRAP = -Wl,--wrap=syscall
$(CORE)/test/test_hot: WRAP = -Wl,--wrap=transform_in
$(CORE)/test/test_crypt_stripe: WRAP = -Wl,--wrap=zns_crypt_seal_unit

# One suite for every kind of device; DEV=… runs it on a real one (all its data are lost).
CONFORM_SRC	:= $(wildcard test/conformance/*.c)
$(B)/test/dev_conform: $(CONFORM_SRC) test/conformance/state.h $(wildcard zns/tools/selftest/*.h) $(CONFORM_OBJ) $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      test/conformance)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $(CONFORM_SRC) $(CONFORM_OBJ) $(TEST_LIB) $(LDLIBS)

# The emulator as a block device of the kernel, for guests.
$(B)/test/ublk_export: test/vm/ublk_export.c test/vm/ublk_abi.h $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(TEST_LIB) $(LDLIBS)

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

# CRIU's clients: stock libcriu and pycriu of the same tarball, our pycriu, and a program for libcriu. `lib` would build all of
# stock's criu first, a minute; it takes one object of it.
CLIENTS		:= $(B)/clients
.PHONY: rpc rpc-clients rpc-go
$(B)/stock-lib/.built: criu/base | $(B)/.deps
	$(call say,CRIU    stock libcriu and pycriu)
	$(Q)scripts/fetch-criu --plain $(B)/stock-lib
	$(Q)export PATH=$(SYS_PATH); stock="$(MAKE) --no-print-directory -C $(B)/stock-lib"; \
		{ $$stock USERCFLAGS=-fPIC criu/include/version.h include/common/asm images/rpc.pb-c.o && $$stock -o criu lib crit; } \
		>$(B)/stock-lib.log 2>&1 || { tail -20 $(B)/stock-lib.log >&2; exit 1; }
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

# The library is built once more, by clang, with the fuzzer's and the sanitizers' instrumentation.
FUZZ_SAN	:= -fsanitize=address,undefined -fno-sanitize-recover=undefined
FUZZ_LIB	:= $(B)/libfuzzed.a
$(FUZZ_LIB): $(TEST_OBJ) $(PROTO_O) $(filter-out %/main.o %/conn.o %/server.o %/startup.o,$(ZNSD_OBJ)) $(B)/test/crash/inproc.o \
	     $(B)/zns/memory/keeper/cmd/context.o $(OCI_READ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(B)/fuzz/%: test/fuzz/%.c $(FUZZ_LIB)
	@mkdir -p $(@D)
	$(call say,FUZZ    $<)
	$(Q)$(CC) $(CPPFLAGS) -g -O1 -fsanitize=fuzzer $(FUZZ_SAN) -o $@ $< $(ZNSD_MEMORY_OBJ) $(FUZZ_LIB) $(LDLIBS)

# The corpus in the repository as unit tests: the same targets without the fuzzer, any compiler.
REPLAY_BIN	:= $(patsubst test/fuzz/fuzz_%.c,$(B)/replay/fuzz_%,$(wildcard test/fuzz/fuzz_*.c))
REPLAY_OBJ	= $(filter-out %/main.o %/conn.o %/server.o %/startup.o,$(ZNSD_OBJ))
REPLAY_SRC	:= test/fuzz/replay.c test/crash/inproc.c
$(B)/replay/fuzz_memkeep: REPLAY_MORE = $(B)/zns/memory/keeper/cmd/context.o
$(B)/replay/fuzz_memkeep: $(B)/zns/memory/keeper/cmd/context.o
$(B)/replay/fuzz_oci: REPLAY_MORE = $(OCI_READ)
$(B)/replay/fuzz_oci: $(OCI_READ)
$(REPLAY_BIN): $(B)/replay/%: test/fuzz/%.c $(REPLAY_SRC) $(REPLAY_OBJ) $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(REPLAY_SRC) $(REPLAY_OBJ) $(REPLAY_MORE) $(TEST_LIB) $(LDLIBS)
