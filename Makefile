# SPDX-License-Identifier: GPL-2.0-only
# ZNS-CRIU: one Makefile for the fork (fetched, patched, built), libzns and its programs.
#   make deps   install the Debian packages needed      make test   everything CI checks
#   make        build into build/bin                    make demo   a live Redis into zones and back
SHELL		:= /bin/bash
.DELETE_ON_ERROR:

B		:= build
BIN		:= $(B)/bin
GEN		:= $(B)/gen
PKGS		:= libprotobuf-c libxxhash json-c uuid
CC		?= gcc
OPT		?= -O2 -g
SAN		?=
WARN		:= -Wall -Wextra -Werror -Wno-unused-parameter -Wshadow -Wstrict-prototypes -Wmissing-prototypes
CPPFLAGS	:= -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Izns/include -I$(GEN) -Icriu/include $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
CFLAGS		:= -std=gnu11 $(OPT) $(WARN) $(SAN)
LDLIBS		:= $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lpthread

PROTO		:= $(wildcard images/*.proto)
PROTO_C		:= $(PROTO:images/%.proto=$(GEN)/%.pb-c.c)
PROTO_O		:= $(PROTO_C:.c=.o)
LIB_DIRS	:= base dev alloc store stripe broker/client
LIB_SRC		:= $(foreach d,base dev alloc store stripe,$(wildcard zns/$(d)/*.c)) $(wildcard zns/broker/client*.c)
LIB_OBJ		:= $(LIB_SRC:%.c=$(B)/%.o)
ZNSD_OBJ	:= $(patsubst %.c,$(B)/%.o,$(filter-out zns/broker/client%.c,$(wildcard zns/broker/*.c)))
CTL_OBJ		:= $(patsubst %.c,$(B)/%.o,$(wildcard zns/ctl/*.c))
HELPER_OBJ	:= $(patsubst %.c,$(B)/%.o,$(wildcard zns/helper/*.c))
UNIT_BIN	:= $(patsubst test/unit/%.c,$(B)/test/%,$(wildcard test/unit/test_*.c))
ALL_OBJ		:= $(LIB_OBJ) $(ZNSD_OBJ) $(CTL_OBJ) $(HELPER_OBJ)

.PHONY: all zns unit clean
all: zns

zns: $(BIN)/znsd $(BIN)/znsctl $(BIN)/zns-helper

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h: images/%.proto
	@mkdir -p $(GEN)
	protoc-c --proto_path=images --c_out=$(GEN) $<

$(GEN)/%.o: $(GEN)/%.c
	$(CC) $(CPPFLAGS) $(OPT) $(SAN) -c -o $@ $<

$(ALL_OBJ): | $(PROTO_C)
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/libzns.a: $(LIB_OBJ) $(PROTO_O)
	rm -f $@ && $(AR) rcs $@ $^

$(BIN)/znsd: $(ZNSD_OBJ) $(B)/libzns.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)
$(BIN)/znsctl: $(CTL_OBJ) $(B)/libzns.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)
$(BIN)/zns-helper: $(HELPER_OBJ) $(B)/libzns.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

$(B)/test/%: test/unit/%.c $(B)/libzns.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(B)/libzns.a $(LDLIBS) -lcmocka

unit: $(UNIT_BIN)
	@for t in $(UNIT_BIN); do $$t || exit 1; done

clean:
	rm -rf $(B)

-include $(ALL_OBJ:.o=.d) $(UNIT_BIN:%=%.d)
