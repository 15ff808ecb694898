#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
observe: what an operator sees: metrics as promtool wants them, top on terminals and elsewhere, the report as a page,
the dashboard in a Prometheus, records of the journal.

  observe.py list | run NAME... | run -a
"""
import sys
from pathlib import Path

TEST = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TEST / part) for part in ('observe', 'hostile', 'docker', 'zonetests')]

import case_dashboard               # noqa: E402
import case_journal                 # noqa: E402
import case_metrics                 # noqa: E402
import case_report                  # noqa: E402
import case_top                     # noqa: E402
from ztscene import suite_main      # noqa: E402

CASES = {}
for part in (case_metrics, case_top, case_report, case_dashboard, case_journal):
    CASES.update(part.CASES)

if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'observe', CASES))
