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
		   libzbd-dev libnvme-dev liburing-dev libfuse3-dev libssl-dev libarchive-dev libblkid-dev
DEB_TEST	:= libcmocka-dev zstd redis-server redis-tools iproute2 iptables nftables procps util-linux libnl-route-3-dev \
		   e2fsprogs btrfs-progs xfsprogs
DEB_DOCKER	:= docker.io runc
DEB_DOC		:= asciidoc-base xmlto
DEB_BARE	:= mmdebstrap debian-archive-keyring git
DEB_REGISTRY	:= skopeo docker-registry
DEB_KUBELET	:= curl iproute2 iptables
DEB_PACKAGE	:= debhelper dpkg-dev fakeroot lintian
PKGS		:= libprotobuf-c libxxhash json-c libzbd libnvme liburing libcrypto libcap blkid
export DEBIAN_FRONTEND := noninteractive
# The distribution's python: criu's build and zdtm need its protobuf module.
SYS_PATH	:= /usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin

CC		:= $(if $(filter default,$(origin CC)),gcc,$(CC))
OPT		?= -O2 -g
SAN		?=
WARN		:= -Wall -Wextra -Werror -Wno-unused-parameter $(if $(filter clang%,$(CC)),-Wno-gnu,-Wno-format-truncation) -Wshadow -Wstrict-prototypes \
		   -Wmissing-prototypes
CPPFLAGS	:= -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Izns/include $(addprefix -I,$(wildcard zns/*/include)) -I$(GEN) -Icriu/include \
		   $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
CFLAGS		:= -std=gnu11 $(OPT) $(WARN) $(SAN)
# Static, so that znsctl-oci runs where libfuse is not installed.
FUSE_LIBS	:= -l:libfuse3.a -ldl -lrt
LDLIBS		:= -Wl,--as-needed $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lpthread -lm

PROTO_C		:= $(patsubst images/%.proto,$(GEN)/%.pb-c.c,$(wildcard images/*.proto))
PROTO_O		:= $(PROTO_C:.c=.o)
objs		= $(patsubst %.c,$(B)/%.o,$(1))
LIB_OBJ		:= $(call objs,$(foreach d,base track memory/engine memory/policy crypt dev dev/emu tools/probe alloc store stripe stripe/write client memory/pages memory/keeper transfer/stream defrag/scatter,$(wildcard zns/$(d)/*.c)))
ZNSD_OBJ	:= $(call objs,$(wildcard zns/broker/*/*.c zns/memory/broker/*.c))
# They register what they serve: nothing names a symbol of theirs, so an archive would leave them out.
ZNSD_MEMORY_OBJ	:= $(call objs,$(wildcard zns/memory/broker/*.c))
# What zns-runc and znsctl share is all of zns/docker but these files of the wrapper's own.
RUNC_SRC	:= $(addprefix zns/docker/,main.c args.c ended.c extend.c feasible.c hold.c links.c netlock.c orphan.c pause.c report.c supervise.c suspend.c terminal.c)
DOCKER_OBJ	:= $(call objs,$(filter-out $(RUNC_SRC),$(wildcard zns/docker/*.c)))
RUNC_OBJ	:= $(call objs,$(RUNC_SRC))
# Commands of packages are programs that znsctl becomes: znsctl-report, znsctl-memory and others.
REPORT_OBJ	:= $(call objs,$(wildcard zns/report/*.c))
MEMORY_CTL_OBJ	:= $(call objs,$(wildcard zns/memory/ctl/*.c))
DEFRAG_OBJ	:= $(call objs,$(wildcard zns/defrag/*.c))
TRANSFER_OBJ	:= $(call objs,$(wildcard zns/transfer/*.c zns/transfer/images/*.c))
OCI_OBJ		:= $(call objs,$(wildcard zns/oci/*.c))
CTL_OBJ		:= $(call objs,$(wildcard zns/ctl/*.c zns/ctl/*/*.c))
# What these programs share with znsctl.
CTL_LIB_OBJ	:= $(filter-out %/main.o %/external.o,$(CTL_OBJ))
DOCKER_CMD_OBJ	:= $(call objs,$(wildcard zns/docker/cmd/*.c))
PROBE_CMD_OBJ	:= $(call objs,$(wildcard zns/tools/probe/cmd/*.c))
CONFORM_OBJ	:= $(call objs,$(wildcard zns/tools/selftest/*.c))
SELFTEST_OBJ	:= $(call objs,$(wildcard zns/tools/selftest/cmd/*.c))
HELPER_OBJ	:= $(call objs,$(wildcard zns/helper/*.c zns/helper/*/*.c))
MEMKEEP_OBJ	:= $(call objs,$(wildcard zns/memory/keeper/cmd/*.c))
MEM_OBJ		:= $(call objs,$(wildcard zns/memory/pager/*.c))
# A test build has power cuts, faults and noise of the emulator, and a clock to be set, where the product has *_none.c.
CONTROL_OBJ	:= $(call objs,$(wildcard test/controls/*.c test/controls/*/*.c))
TEST_OBJ	:= $(filter-out %_none.o,$(LIB_OBJ)) $(CONTROL_OBJ)
TEST_LIB	:= $(B)/test/libzns.a
TEST_BIN	:= $(B)/test/bin
TEST_PROGRAMS	:= $(addprefix $(TEST_BIN)/,znsd znsctl znsctl-docker znsctl-probe znsctl-selftest znsctl-report znsctl-memory znsctl-defrag znsctl-transfer znsctl-oci zns-helper zns-mem zns-memkeep) $(B)/test/next/znsd
ALL_OBJ		:= $(LIB_OBJ) $(ZNSD_OBJ) $(CTL_OBJ) $(REPORT_OBJ) $(MEMORY_CTL_OBJ) $(DEFRAG_OBJ) $(TRANSFER_OBJ) $(OCI_OBJ) $(HELPER_OBJ) $(DOCKER_OBJ) $(RUNC_OBJ) $(DOCKER_CMD_OBJ) $(PROBE_CMD_OBJ) $(MEMKEEP_OBJ) $(MEM_OBJ) \
		   $(CONFORM_OBJ) $(SELFTEST_OBJ) $(CONTROL_OBJ)
# test_mem_refused runs others where the kernel has less, which takes minutes, as test_mem_moves meeting does: make unit-refused
UNIT_BIN	:= $(patsubst test/unit/%.c,$(B)/test/%,$(filter-out %/test_mem_refused.c $(if $(SAN),%/test_mem_rules.c %/test_adapter.c %/test_adapter_holder.c %/test_track_soft.c),$(wildcard test/unit/test_*.c)))
FUZZ_BIN	:= $(patsubst test/fuzz/%.c,$(B)/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))

ADAPTER		:= $(wildcard criu/adapter/*.[ch] criu/adapter/*/*.[ch] criu/include/*.h)
CRIU_SRC	:= $(B)/criu
PATCHES		:= criu/base criu/patches/series $(wildcard criu/patches/*.patch criu/patches/*/*.patch) scripts/fetch-criu scripts/fetch-orig

.PHONY: all zns criu deps deps-vm deps-doc deps-docker deps-bare deps-clang demo man install uninstall clean
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
PROGRAMS	:= $(addprefix $(BIN)/,znsd znsctl znsctl-docker znsctl-probe znsctl-selftest znsctl-report znsctl-memory znsctl-defrag znsctl-transfer znsctl-oci zns-helper zns-runc zns-memkeep zns-mem)
zns: $(PROGRAMS)

# Both: whoever includes the header is built after it is made anew.
$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h: images/%.proto $(wildcard images/*.proto) | $(B)/.deps
	@mkdir -p $(GEN)
	$(call say,PROTO   $<)
	$(Q)protoc --proto_path=images --c_out=$(GEN) $<

$(GEN)/%.o: $(GEN)/%.c | $(PROTO_C)
	$(Q)$(CC) $(CPPFLAGS) $(OPT) $(SAN) -c -o $@ $<

# Of which sources a build is; only the programs' own main files have it, so a commit compiles little anew.
VERSION		:= $(GEN)/zns-version.h
.PHONY: FORCE
$(VERSION): FORCE
	$(Q)scripts/version $@
$(call objs,$(foreach p,ctl broker/requests helper docker memory/pager memory/keeper/cmd,zns/$(p)/main.c) zns/tools/selftest/cmd/report.c): $(VERSION)

$(ALL_OBJ) $(B)/test/crash/inproc.o: | $(PROTO_C)
ifeq ($(shell uname -m),x86_64)
$(B)/zns/base/hash_avx2.o: CFLAGS += -mavx2
$(B)/zns/base/hash_avx512.o: CFLAGS += -mavx512f
endif
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/zns/oci/export_serve.o: CPPFLAGS += -isystem /usr/include/fuse3

$(B)/libzns.a: $(LIB_OBJ) $(PROTO_O)
	$(call say,AR      $@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BIN)/znsd: $(ZNSD_OBJ) $(B)/libzns.a
$(BIN)/znsctl: $(CTL_OBJ) $(B)/libzns.a
$(B)/libctl.a: $(CTL_LIB_OBJ)
	$(call say,AR      $@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(BIN)/znsctl-docker: $(DOCKER_CMD_OBJ) $(B)/libctl.a $(DOCKER_OBJ) $(B)/libzns.a
$(BIN)/znsctl-probe: $(PROBE_CMD_OBJ) $(B)/libctl.a $(B)/libzns.a
$(BIN)/znsctl-report: $(REPORT_OBJ) $(filter-out %/main.o,$(MEMORY_CTL_OBJ)) $(B)/libctl.a $(DOCKER_OBJ) $(B)/libzns.a
$(BIN)/znsctl-defrag: $(DEFRAG_OBJ) $(B)/libctl.a $(B)/libzns.a
$(BIN)/znsctl-transfer: $(TRANSFER_OBJ) $(B)/libctl.a $(B)/libzns.a
$(BIN)/znsctl-oci: $(OCI_OBJ) $(filter-out %/main.o,$(TRANSFER_OBJ)) $(B)/libctl.a $(B)/libzns.a
$(BIN)/znsctl-memory: $(MEMORY_CTL_OBJ) $(B)/libctl.a $(DOCKER_OBJ) $(B)/libzns.a
$(BIN)/znsctl-selftest: $(SELFTEST_OBJ) $(CONFORM_OBJ) $(B)/libctl.a $(B)/libzns.a
$(BIN)/zns-runc: $(RUNC_OBJ) $(DOCKER_OBJ) $(B)/libzns.a
$(BIN)/zns-helper: $(HELPER_OBJ) $(B)/libzns.a
$(BIN)/zns-memkeep: $(MEMKEEP_OBJ) $(B)/libzns.a
$(BIN)/zns-mem: $(MEM_OBJ) $(B)/libzns.a
$(BIN)/znsctl-transfer $(BIN)/znsctl-oci: LDLIBS += -larchive
$(BIN)/znsctl-oci: LDLIBS += $(FUSE_LIBS)
$(PROGRAMS):
	@mkdir -p $(@D)
	$(call say,LD      $@)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

# The core alone: nothing of zns/memory, docker, defrag, transfer, oci, report or tools is compiled into it or linked.
CORE		:= $(B)/core
PACKAGE_OBJ	:= $(B)/zns/memory/% $(B)/zns/docker/% $(B)/zns/defrag/% $(B)/zns/transfer/% $(B)/zns/oci/% $(B)/zns/report/% $(B)/zns/tools/%
CORE_PROGRAMS	:= $(addprefix $(CORE)/bin/,znsd znsctl zns-helper)
CORE_TEST_PROGRAMS := $(addprefix $(CORE)/test/bin/,znsd znsctl zns-helper)
$(CORE)/libzns.a: $(filter-out $(PACKAGE_OBJ),$(LIB_OBJ)) $(PROTO_O)
$(CORE)/test/libzns.a: $(filter-out $(PACKAGE_OBJ) $(B)/test/controls/mem/%,$(TEST_OBJ)) $(PROTO_O)
$(CORE)/libzns.a $(CORE)/test/libzns.a:
	@mkdir -p $(@D)
	$(call say,AR      $@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(CORE)/bin/znsd: $(filter-out $(PACKAGE_OBJ),$(ZNSD_OBJ)) $(CORE)/libzns.a
$(CORE)/bin/znsctl: $(CTL_OBJ) $(CORE)/libzns.a
$(CORE)/bin/zns-helper: $(HELPER_OBJ) $(CORE)/libzns.a
$(CORE)/test/bin/znsd: $(filter-out $(PACKAGE_OBJ),$(ZNSD_OBJ)) $(CORE)/test/libzns.a
$(CORE)/test/bin/znsctl: $(CTL_OBJ) $(CORE)/test/libzns.a
$(CORE)/test/bin/zns-helper: $(filter-out %_none.o,$(HELPER_OBJ)) $(CORE)/test/libzns.a
$(CORE_TEST_PROGRAMS): LDLIBS += -Wl,--wrap=aead_seal
$(CORE_PROGRAMS) $(CORE_TEST_PROGRAMS):
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
$(TEST_BIN)/znsctl: $(CTL_OBJ) $(TEST_LIB)
$(TEST_BIN)/znsctl-docker: $(DOCKER_CMD_OBJ) $(B)/libctl.a $(DOCKER_OBJ) $(TEST_LIB)
$(TEST_BIN)/znsctl-probe: $(PROBE_CMD_OBJ) $(B)/libctl.a $(TEST_LIB)
$(TEST_BIN)/znsctl-report: $(REPORT_OBJ) $(filter-out %/main.o,$(MEMORY_CTL_OBJ)) $(B)/libctl.a $(DOCKER_OBJ) $(TEST_LIB)
$(TEST_BIN)/znsctl-defrag: $(DEFRAG_OBJ) $(B)/libctl.a $(TEST_LIB)
$(TEST_BIN)/znsctl-transfer: $(TRANSFER_OBJ) $(B)/libctl.a $(TEST_LIB)
$(TEST_BIN)/znsctl-oci: $(OCI_OBJ) $(filter-out %/main.o,$(TRANSFER_OBJ)) $(B)/libctl.a $(TEST_LIB)
$(TEST_BIN)/znsctl-memory: $(MEMORY_CTL_OBJ) $(B)/libctl.a $(DOCKER_OBJ) $(TEST_LIB)
$(TEST_BIN)/znsctl-selftest: $(SELFTEST_OBJ) $(CONFORM_OBJ) $(B)/libctl.a $(TEST_LIB)
$(TEST_BIN)/zns-helper: $(filter-out %_none.o,$(HELPER_OBJ)) $(TEST_LIB)
$(TEST_BIN)/zns-mem: $(MEM_OBJ) $(TEST_LIB)
$(TEST_BIN)/zns-memkeep: $(MEMKEEP_OBJ) $(TEST_LIB)
$(TEST_BIN)/znsctl-transfer $(TEST_BIN)/znsctl-oci: LDLIBS += -larchive
$(TEST_BIN)/znsctl-oci: LDLIBS += $(FUSE_LIBS)
# test/controls/nonces.c notes each seal.
$(TEST_PROGRAMS): LDLIBS += -Wl,--wrap=aead_seal
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
	$(Q)cp -p criu/adapter/*.[ch] criu/adapter/*/*.[ch] $(CRIU_SRC)/criu/ && cp -p criu/include/*.h $(VERSION) $(CRIU_SRC)/criu/include/
	$(Q)PATH=$(SYS_PATH) $(MAKE) --no-print-directory -C $(CRIU_SRC) criu >$(B)/criu.log 2>&1 || \
		{ tail -40 $(B)/criu.log >&2; exit 1; }
	$(Q)cp $(CRIU_SRC)/criu/criu $@

# The same with a second witness of every image: test/tee/zns-tee.h. Only our files differ.
TEE		:= $(B)/tee
.PHONY: criu-tee
criu-tee: $(TEE)/criu/criu/criu
$(TEE)/criu/criu/criu: $(BIN)/criu $(wildcard test/tee/*)
	$(call say,CRIU    $@)
	$(Q)rm -rf $(TEE) && mkdir -p $(TEE) && cp -a $(CRIU_SRC) $(TEE)/criu
	$(Q)rm -f $(TEE)/criu/criu/criu && cp test/tee/zns-tee.[ch] $(TEE)/criu/criu/
	$(Q)patch -d $(TEE)/criu -p1 --quiet --no-backup-if-mismatch <test/tee/tee.patch
	$(Q)PATH=$(SYS_PATH) $(MAKE) --no-print-directory -C $(TEE)/criu criu >$(B)/tee.log 2>&1 || \
		{ tail -40 $(B)/tee.log >&2; exit 1; }

# --- tests and benchmarks ----------------------------------------------------------------------------------------
include test/programs.mk test/bench/bench.mk test/drive/drive.mk test/suites.mk

demo: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)scripts/demo

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
	install $(addprefix $(BIN)/,criu znsd zns-helper zns-runc zns-memkeep zns-mem znsctl-docker znsctl-probe znsctl-selftest znsctl-report znsctl-memory znsctl-defrag znsctl-transfer znsctl-oci) scripts/gc-cri scripts/cri-image $(DESTDIR)$(LIBEXEC)
	install $(BIN)/znsctl $(DESTDIR)$(PREFIX)/bin
	ln -sf ../libexec/zns-criu/criu $(DESTDIR)$(PREFIX)/bin/criu-zns
	for u in systemd/*; do sed 's,@BINDIR@,$(PREFIX)/bin,; s,@LIBEXEC@,$(LIBEXEC),' $$u >$(DESTDIR)$(UNITDIR)/$$(basename $$u); done
	install -m 644 completion/znsctl.bash $(DESTDIR)$(BASHDIR)/znsctl
	ln -sf znsctl $(DESTDIR)$(BASHDIR)/criu-zns
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
	rm -f $(DESTDIR)$(PREFIX)/bin/znsctl $(DESTDIR)$(PREFIX)/bin/criu-zns $(addprefix $(DESTDIR)$(BASHDIR)/,znsctl criu-zns) $(DESTDIR)$(ZSHDIR)/_znsctl
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
