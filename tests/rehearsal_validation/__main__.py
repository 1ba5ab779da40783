"""Whether rehearsals are true: `record` plays runs on live clusters, `report` compares and writes the page.

    python -m tests.rehearsal_validation record --kind kafka-4.1.0 [--runs one,link]
    python -m tests.rehearsal_validation report

`record` needs java, mvn and a Kafka as KWOB_REAL_KAFKA starts it, less for `--kind kwob`; `report` only what is
recorded.
"""

from __future__ import annotations

import argparse
import sys

from tests.rehearsal_validation.agreement import recordings
from tests.rehearsal_validation.page import PAGE, page
from tests.rehearsal_validation.record import record
from tests.rehearsal_validation.runs import KINDS, RUNS


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal_validation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--kind", choices=list(KINDS), required=True)
    recording.add_argument("--runs", default=",".join(run.name for run in RUNS))
    commands.add_parser("report")
    options = parser.parse_args()
    if options.command == "record":
        record(options.kind, options.runs.split(","), lambda line: print(line, file=sys.stderr, flush=True))
        return 0
    PAGE.write_text(page(recordings()), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
