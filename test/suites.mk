# SPDX-License-Identifier: GPL-2.0-only
# What is tested, and how it is started. Benchmarks: bench/bench.mk.

.PHONY: test unit unit-refused conform crash fuzz fuzz-build lint test-vm interop kill scale scale-small
.PHONY: test-docker test-podman test-cri zdtm zdtm-sample zdtm-smoke zdtm-migration

# The gate: what decides about a change.
test: deps deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all test-bin rpc-clients gate-programs
	$(Q)PATH=$(SYS_PATH) $(MAKE) --no-print-directory -s -C test/zonetests -j$$(nproc)
	$(Q)scripts/test-all $(B)
# What parts of the gate would build themselves, which side by side they must not.
GATE_PROGRAMS	= $(B)/bench/scatter $(B)/test/dev_conform $(B)/test/crash $(CLIENTS)/plugin/testplugin.so
.PHONY: gate-programs
gate-programs: $(GATE_PROGRAMS)

# The hunt: what is random, by seed, until MINUTES are over. It decides about nothing.
.PHONY: soak
MINUTES		?= 30
SEED		?=
SOAK		?=
SOAK_BIN	= $(patsubst test/unit/%.c,$(B)/test/%,$(wildcard test/unit/soak_*.c))
soak: deps deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all test-bin rpc-clients $(GATE_PROGRAMS) $(UNIT_BIN) $(SOAK_BIN) $(B)/load/dumper $(B)/load/spinner
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) B=$(B)/asan SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined" zns test-bin \
		$(patsubst test/unit/%.c,$(B)/asan/test/%,$(filter-out %/test_adapter.c %/test_adapter_holder.c %/test_track_soft.c,$(wildcard test/unit/test_*.c)))
	$(Q)scripts/soak --build $(B) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(SOAK)

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
VM_UNITS := test_track $(addprefix test_track_,calls race stop) test_mem $(addprefix test_mem_,hold reach moves late direct hiber death rules)
test-vm: deps-vm
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all test-bin $(B)/test/dev_conform $(B)/test/ublk_export \
		$(DRIVE_SO) $(addprefix $(B)/test/,$(VM_UNITS))
	$(Q)PATH=$(SYS_PATH) scripts/vm/test-vm $(VM)

# --- one program or library ---------------------------------------------------------------------------------------
unit: $(UNIT_BIN) zns test-bin
	$(Q)ZNS_LIBEXEC=$(CURDIR)/$(BIN) /usr/bin/python3 test/harness/units.py $(UNIT_BIN)

# The core without any package: programs and tests, in build/core.
.PHONY: core core-programs
core-programs: $(CORE_PROGRAMS) $(CORE_TEST_PROGRAMS)
core: core-programs criu $(CORE_UNITS:%=$(CORE)/test/%)
	$(Q)ZNS_LIBEXEC=$(CURDIR)/$(CORE)/bin /usr/bin/python3 test/harness/units.py $(CORE_UNITS:%=$(CORE)/test/%)

unit-refused: $(B)/test/test_mem_refused $(UNIT_BIN)
	$(Q)timeout 900 $<
	$(Q)timeout 900 $(B)/test/test_mem_moves meeting

conform: $(B)/test/dev_conform zns
	$(Q)$(if $(DEV),$(B)/test/dev_conform $(DEV) --yes-destroy,test/conformance/emu.sh $(B))

CRASH_STATES	?= 100000
CRASH_CUTS	?= 200
crash: $(B)/test/crash all test-bin
	$(Q)test/crash/run $(B) $(CRASH_STATES) $(CRASH_CUTS)

.PHONY: fuzz-replay
fuzz-replay: $(REPLAY_BIN)
	$(Q)p=0 f=0; for t in $(REPLAY_BIN); do \
		if $$t test/fuzz/corpus/$${t##*/} >$$t.out 2>$$t.err; then p=$$((p + 1)); tail -1 $$t.out; \
		else f=$$((f + 1)); echo "FAIL $$t: $$(tail -3 $$t.err)"; fi; done; \
	echo "$$p passed, $$f failed, 0 skipped"; [ $$f = 0 ]

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
	$(Q)scripts/check/packages $(B) --check
	$(Q)scripts/check/cites
	$(Q)scripts/check/targets
	$(Q)scripts/check/papers >/dev/null
	$(Q)scripts/check/format
	$(Q)for f in zns/stripe/write/*.c; do \
		clang $(CPPFLAGS) -std=gnu11 -Wthread-safety -Werror=thread-safety -fsyntax-only $$f || exit 1; done
	$(Q)clang-tidy --quiet $(filter-out %_avx2.c %_avx512.c,$(wildcard zns/*/*.c zns/*/*/*.c zns/*/*/*/*.c test/controls/*.c test/controls/*/*.c)) -- $(CPPFLAGS) -isystem /usr/include/fuse3 -std=gnu11 2>/dev/null
	$(Q)[ $$(uname -m) != x86_64 ] || clang-tidy --quiet $(wildcard zns/*/*_avx2.c zns/*/*_avx512.c) -- $(CPPFLAGS) -std=gnu11 -mavx2 -mavx512f 2>/dev/null

# --- dumps and restores of real programs -------------------------------------------------------------------------
# Each is test/zonetests/NAME.py, all its cases. Of restores and rounds `make test` has a part (scripts/test-all); incremental's
# chains are tracked by the helper, in a guest with soft-dirty bits they are a part of test-vm.
ZONETESTS	:= zonetests errors crit options crypt compact together tools chains oci composed restores \
		   guard lazyfaults livedump incremental rounds migration firstpages rpc netlock disk hostcalls transfers
.PHONY: $(ZONETESTS)
$(ZONETESTS): all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/$@.py run -a --report $(B)/report/$@
crit rpc: rpc-clients
rpc: rpc-go
options: $(CLIENTS)/plugin/testplugin.so
compact: $(B)/bench/scatter

# What an attacker can choose: names, links, FIFOs, locks, lengths, records with right checksums.
.PHONY: hostile
hostile: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/hostile/hostile.py run -a -j2 --report $(B)/report/hostile

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

# OCI images through a registry (skopeo, docker-registry).
.PHONY: registry
registry: all test-bin
	$(Q)$(call install,$(DEB_REGISTRY))
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/registry.py run -a --report $(B)/report/registry

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
memory-crypt: all test-bin $(addprefix $(B)/test/,test_mem test_mem_death test_mem_rules)
	$(Q)for t in test_mem test_mem_death test_mem_rules; do ZNS_TEST_MEM_ENCRYPT=1 timeout 900 $(B)/test/$$t || exit 1; done
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memcrypt.py run -a --build $(B)
memory-soak: all test-bin $(B)/test/test_mem $(B)/test/test_mem_late $(B)/test/test_mem_direct
	$(Q)for t in test_mem "test_mem_late restarting" "test_mem_direct reading"; do \
		ZNS_TEST_MEM_UNITS=$(MEMORY_ROUNDS) timeout 3600 $(B)/test/$$t || exit 1; done
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memory.py run soak deaths redis node java go \
		--rounds $(MEMORY_ROUNDS) --units $(MEMORY_ROUNDS) --build $(B)
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memoryapps.py run postgresql java_g1 nginx --units $(MEMORY_ROUNDS) --build $(B)
# Pager, keeper and broker are killed while a unit is in each of its states, and pagers beside forks: 20 minutes.
MEMORY_KILLS	?= 1000
.PHONY: memory-kills
memory-kills: all test-bin $(B)/test/test_mem_death
	$(Q)ZNS_TEST_MEM_KILLS=$(MEMORY_KILLS) $(B)/test/test_mem_death killed_beside_forks
	$(Q)PATH=$(SYS_PATH):$(PATH) /usr/bin/python3 test/zonetests/memorykills.py run -a --build $(B)

# Dumps of tasks that run on; LIVE_DUMPS of programs that never stop to write, each restored and checked.
LIVE_DUMPS	?= 1000
.PHONY: live-controls live-soak
live-controls: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/livecontrols.py run -a --report $(B)/report/livecontrols
live-soak: all test-bin
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/livedump.py soak --dumps $(LIVE_DUMPS)

# Live dumps of Redis, PostgreSQL, JVMs and Node.js under load, each page compared; LIVE_APP_DUMPS of each.
LIVE_APP_DUMPS	?= 20
.PHONY: live-apps
live-apps: all test-bin
	$(Q)LIVE_APP_DUMPS=$(LIVE_APP_DUMPS) PATH=$(SYS_PATH) python3 test/zonetests/liveapps.py run -a --timeout 120 --report $(B)/report/liveapps

# kill -9 of criu, helper and broker at every message of a live dump; LIVE_KILL_EVERY=3: at each third one.
LIVE_KILL_EVERY	?= 1
.PHONY: live-kill
live-kill: all
	$(Q)LIVE_KILL_EVERY=$(LIVE_KILL_EVERY) PATH=$(SYS_PATH) python3 test/zonetests/livekill.py run -a --timeout 120 --report $(B)/report/livekill

# Export and import beside stock CRIU and its crit, with a witness of every image.
interop: all criu-tee
	$(Q)scripts/zdtm-sample --stock-only >/dev/null
	$(Q)PATH=$(SYS_PATH) $(MAKE) --no-print-directory -C $(B)/zdtm/stock lib >$(B)/stock-lib.log 2>&1 || \
		{ tail -20 $(B)/stock-lib.log >&2; exit 1; }
	$(Q)PATH=$(SYS_PATH) python3 test/zonetests/interop.py run -a --report $(B)/report/interop

# The patches that mend CRIU itself, each alone on a release, beside stock: some minutes of builds.
.PHONY: upstream
upstream: deps all
	$(Q)PATH=$(SYS_PATH) python3 test/upstream/run.py

# --- kills, crowds ------------------------------------------------------------------------------------------------
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

# --- Docker, Podman, Kubernetes, zdtm ---------------------------------------------------------------------------
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

# docker-compose 2 of a later Debian, unpacked, and 1, where the machine has that.
.PHONY: test-compose
test-compose: deps-docker
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/docker/compose.py

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
	$(Q)scripts/zdtm-sample --gate --report $(B)/report/zdtm-smoke
