#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The longest of the tests of running programs under a budget (68-memory): what a program does to its memory while it goes out,
# and pagers that are killed in every state of a unit. An emulated processor takes its time for these.
# vm: --timeout 4000
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
. "$(dirname "$0")/memory-units.sh"

guest_setup
title "programs and what they do with their memory, and who dies meanwhile"
memory_units test_mem_late test_mem_death test_mem_rules
finish
