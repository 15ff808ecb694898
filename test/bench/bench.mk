# SPDX-License-Identifier: GPL-2.0-only
# The papers' experiments (test/bench/papers), what they run on (vtime, fio's engine), and how they are started.

FIO_SRC		:= $(B)/fio-src
VTIME_SRC	:= test/bench/vtime
PIC_OBJ		:= $(patsubst %.c,$(B)/pic/%.o,$(filter-out %_none.c,$(foreach d,base dev dev/emu store,$(wildcard zns/$(d)/*.c))) zns/crypt/record.c \
		   $(wildcard test/controls/*.c)) \
		   $(patsubst $(GEN)/%.c,$(B)/pic/gen/%.o,$(PROTO_C))
SHARE_BIN	:= $(foreach v,plain parts choice gain,$(B)/bench/share-$(v)/znsd)
PAPERS_BIN	:= $(B)/bench/vtime $(B)/bench/vtime.so $(B)/bench/ckptload $(B)/bench/scatter $(B)/bench/pageload $(B)/bench/zns-fio.so $(B)/bench/subject $(SHARE_BIN) \
		   $(B)/bench/share-memory/znsd

.PHONY: bench-steps bench-incremental bench-live bench-emu bench-probe bench-docker bench-docker-five
.PHONY: bench bench-stock bench-papers bench-smoke bench-migration

$(B)/pic/zns/base/hash_avx2.o: CFLAGS += -mavx2
$(B)/pic/zns/base/hash_avx512.o: CFLAGS += -mavx512f
$(B)/pic/%.o: %.c | $(PROTO_C)
	@mkdir -p $(@D)
	$(call say,CC-PIC  $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(B)/pic/gen/%.o: $(GEN)/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(OPT) -fPIC -fvisibility=hidden -c -o $@ $<

$(FIO_SRC)/fio: scripts/fetch-fio scripts/fetch-orig test/bench/fio/base
	$(call say,FETCH   fio, and build it in $(FIO_SRC))
	$(Q)scripts/fetch-fio $(FIO_SRC)

# fio's headers are not written for our warnings.
$(B)/bench/zns-fio.so: test/bench/fio/zns-fio.c $(FIO_SRC)/fio $(PIC_OBJ)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -include $(FIO_SRC)/config-host.h -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DBITS_PER_LONG=64 -std=gnu11 $(OPT) \
		-Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -fPIC -fvisibility=hidden -shared \
		-isystem $(FIO_SRC) -Izns/include -I$(GEN) -o $@ $< $(PIC_OBJ) $(LDLIBS)

$(B)/bench/vtime.so: $(VTIME_SRC)/preload.c $(VTIME_SRC)/shared.c $(VTIME_SRC)/vtime.h
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE -std=gnu11 $(OPT) $(WARN) -fPIC -fvisibility=hidden -shared -o $@ $(filter %.c,$^) -ldl -lpthread

$(B)/bench/vtime: $(VTIME_SRC)/conductor.c $(VTIME_SRC)/shared.c $(VTIME_SRC)/vtime.h
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE $(CFLAGS) -o $@ $(filter %.c,$^) -lpthread

$(B)/bench/ckptload: test/bench/papers/ckptload.c criu/include/zns-wire.h $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(TEST_LIB) $(LDLIBS)

$(B)/bench/pageload: test/bench/papers/pageload.c
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE $(CFLAGS) -o $@ $< -lpthread

$(B)/bench/scatter: test/bench/papers/scatter.c $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(TEST_LIB) $(LDLIBS)

# Brokers that share groups by plainer rules, controls of `demand`: plain_share.c in place of functions of zns/alloc.
$(B)/bench/share-plain/znsd: SHARE := -DPLAIN_CHOICE=1 -DPLAIN_STAY
$(B)/bench/share-parts/znsd: SHARE := -DPLAIN_CHOICE=2 -DPLAIN_STAY
$(B)/bench/share-choice/znsd: SHARE := -DPLAIN_STAY
$(B)/bench/share-gain/znsd: SHARE := -DPLAIN_CHOICE=1
$(SHARE_BIN): test/bench/papers/plain_share.c zns/alloc/spread.c $(ZNSD_OBJ) $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $@)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $(@D)/share.o $(SHARE) $<
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $(@D)/spread.o $(if $(findstring CHOICE,$(SHARE)),-Dzns_alloc_spread=zns_alloc_spread_shipped) zns/alloc/spread.c
	$(Q)$(CC) $(CFLAGS) -o $@ $(ZNSD_OBJ) $(@D)/share.o $(@D)/spread.o $(TEST_LIB) $(LDLIBS)

# The control of `paging`: memory contexts give way to nobody (plain_memory.c).
$(B)/bench/share-memory/znsd: test/bench/papers/plain_memory.c $(ZNSD_OBJ) $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $@)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -Wl,--wrap=group_at_work,--wrap=groups_state -o $@ $< $(ZNSD_OBJ) $(TEST_LIB) $(LDLIBS)

$(B)/bench/subject: test/bench/subject.c
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE $(CFLAGS) -o $@ $<

# Dump and restore beside stock CRIU, in wall time.
# What encryption costs: the same device, plain and encrypted in turns.
.PHONY: bench-crypt
bench-crypt: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/crypt.py --report $(B)/report/bench-crypt

# A checkpoint to a registry on this machine and back, beside skopeo alone.
.PHONY: bench-registry
bench-registry: deps
	$(Q)$(call install,$(DEB_REGISTRY))
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all $(B)/bench/subject
	$(Q)PATH=$(SYS_PATH) python3 test/bench/registry_rates.py --bin $(B)/bin --subject $(B)/bench/subject --report $(B)/report/bench-registry $(BENCH_REGISTRY)
	$(Q)PATH=$(SYS_PATH) python3 test/bench/registry_chain.py

# Small things, and many of them, beside stock CRIU; BENCH_SMALL="-n 5" and the like.
.PHONY: bench-small
bench-small: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/small.py --report $(B)/report/bench-small $(BENCH_SMALL)

# Many restores of one checkpoint at once, beside stock CRIU; BENCH_RESTORES="-n 3 --counts 1,45" and the like.
.PHONY: bench-restores
bench-restores: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/restores.py --report $(B)/report/restores $(BENCH_RESTORES)

# How long tasks stand still in a dump, by size; BENCH_FREEZE="--sizes 16M,8G -n 3" and the like. Then by number of
# objects; BENCH_FREEZE_MANY="--kinds threads,tcp --realtime".
.PHONY: bench-freeze
bench-freeze: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/freeze.py --report $(B)/report/freeze $(BENCH_FREEZE)
	$(Q)PATH=$(SYS_PATH) python3 test/bench/freeze_many.py --report $(B)/report/freeze $(BENCH_FREEZE_MANY)

# What dumps cost Redis and PostgreSQL that run on; BENCH_LIVE_APPS="-n 3 --redis 1000 --postgres 0" and the like.
.PHONY: bench-live-apps
bench-live-apps: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/live_apps.py --report $(B)/report/live-apps $(BENCH_LIVE_APPS)

# How many idle containers fit beside a critical one: ample DRAM, swap, zones. QUICK=1: a few minutes. Cells are kept, and a second
# run goes on; BENCH_DENSITY="--minutes 20 --arms swap,ours --containers 1,9,25" and the like.
DENSITY_BIN	:= $(addprefix $(B)/bench/density/,noise touch load)
.PHONY: bench-density bench-density-check
$(B)/bench/density/noise: LDFLAGS := -static
$(DENSITY_BIN): $(B)/bench/density/%: test/bench/density/%.c $(wildcard test/bench/density/*.h)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE $(CFLAGS) $(LDFLAGS) -o $@ $< -lpthread
bench-density: deps
	$(Q)$(call install,nodejs)
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) zns $(DENSITY_BIN)
	$(Q)PATH=$(SYS_PATH) python3 test/bench/density/density.py run $(if $(QUICK),--quick) --build $(B) \
		--report $(B)/report/density$(if $(QUICK),-quick) $(BENCH_DENSITY)
bench-density-check: zns $(DENSITY_BIN)
	$(Q)PATH=$(SYS_PATH) python3 test/bench/density/selfcheck.py --build $(B)

bench-stock: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/compare.py --report $(B)/report/bench

$(B)/bench/faults: test/bench/faults.c
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE $(CFLAGS) -o $@ $<

$(B)/bench/writes: test/bench/writes.c
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE $(CFLAGS) -o $@ $<

# Page server and lazy pages beside stock CRIU with files, in wall time; BENCH_MIGRATION="--rounds 3" and the like.
bench-migration: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all $(B)/bench/faults $(B)/bench/writes
	$(Q)PATH=$(SYS_PATH) python3 test/bench/migration.py --report $(B)/report/migration-bench $(BENCH_MIGRATION)

# Lazy restores with a record of the pages touched first and without; BENCH_FIRSTPAGES="redis --rounds 3" and the like.
.PHONY: bench-firstpages
bench-firstpages: deps all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/firstpages.py $(BENCH_FIRSTPAGES)

# A hibernated Redis of 1 GiB until its first answer, beside restores; BENCH_HIBERNATE="--rounds 5" and the like.
.PHONY: bench-hibernate bench-hibernate-docker
bench-hibernate-docker: deps all
	$(Q)PATH=$(SYS_PATH) python3 test/bench/hibernate_docker.py $(BENCH_HIBERNATE)
bench-hibernate: deps all
	$(Q)scripts/zdtm-sample --stock-only >/dev/null
	$(Q)PATH=$(SYS_PATH) python3 test/bench/hibernate.py --stock $(B)/zdtm/stock/criu/criu --report $(B)/report/hibernate $(BENCH_HIBERNATE)

$(B)/bench/memfault: test/bench/memfault.c
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE $(CFLAGS) -o $@ $< -lpthread

$(B)/bench/redisload: test/bench/redisload.c
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) -D_GNU_SOURCE $(CFLAGS) -o $@ $<

# Faults from zones beside major faults of a file, eviction and how long threads stand still for it, Redis under a budget, and pagers of
# idle programs; BENCH_MEMORY="--rounds 9" and the like.
.PHONY: bench-memory
bench-memory: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all $(B)/bench/memfault $(B)/bench/redisload
	$(Q)PATH=$(SYS_PATH) python3 test/bench/memory.py --report $(B)/report/memory $(BENCH_MEMORY)

# The papers' experiments; RUN="NAME…" takes some of them (test/bench/papers/papers.py list).
bench-papers: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all test-bin $(PAPERS_BIN)
	$(Q)PATH=$(SYS_PATH) python3 test/bench/papers/papers.py run $(RUN) --build $(B) --report $(B)/report/papers

# The papers' figures with a kernel in between, on modelled drives in guests, beside stock CRIU on a conventional one: up to 90 minutes.
# What has ended is kept; BENCH_DRIVES="--parts a,b --again" and the like.
.PHONY: bench-drives
bench-drives: deps deps-vm
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all $(DRIVE_SO) $(B)/bench/subject $(FIO_SRC)/fio
	$(Q)scripts/zdtm-sample --stock-only >/dev/null
	$(Q)PATH=$(SYS_PATH) python3 test/bench/drives/drives.py run --report $(B)/report/drives $(BENCH_DRIVES)

# The same on a small scale and with what must hold: part of `make test`.
bench-smoke: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) zns test-bin $(PAPERS_BIN)
	$(Q)PATH=$(SYS_PATH) python3 test/bench/papers/papers.py smoke --build $(B) --report $(B)/report/papers-smoke

# Weights, and what a scattered checkpoint takes from its neighbours, in model time; then the paper's own experiments in guests.
# What has ended there is kept; BENCH_FRAGMENTATION="--quick", "--parts a,c", "--kernel 6.1" and the like. bench-fragments: the guests alone.
.PHONY: bench-fragmentation bench-fragments
bench-fragmentation: deps
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all test-bin $(PAPERS_BIN)
	$(Q)PATH=$(SYS_PATH) python3 test/bench/papers/papers.py run weights defrag --build $(B) --report $(B)/report/fragmentation
	$(Q)$(MAKE) --no-print-directory bench-fragments

bench-fragments: deps deps-vm
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all $(DRIVE_SO) $(FIO_SRC)/fio
	$(Q)PATH=$(SYS_PATH) python3 test/bench/fragments/fragments.py run --report $(B)/report/fragments $(BENCH_FRAGMENTATION)

bench: bench-papers bench-stock

-include $(PIC_OBJ:.o=.d)

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

# Composed images beside plain ones: how fast they are read.
.PHONY: bench-composed
$(B)/bench/composed: test/bench/composed.c $(TEST_LIB)
	@mkdir -p $(@D)
	$(call say,CC      $<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(TEST_LIB) $(LDLIBS) -lcmocka
bench-composed: $(B)/bench/composed
	$(Q)$(B)/bench/composed

# Policies of memory on zones, by recorded traces (Documentation/inside/memory-policy.md). sim-traces records them anew: some 15 minutes.
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
