"""Whether rehearsals are true: `record` plays runs on live clusters, `report` compares and writes the page.

    python -m tests.rehearsal_validation record --kind kafka-4.1.0 [--runs one,link]
    python -m tests.rehearsal_validation report

`record` needs java, mvn and a Kafka as KWOB_REAL_KAFKA starts it, less for `--kind kwob`; `report` only what is
recorded.
"""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from controller.world.exit_codes import INTERRUPTED
from tests.rehearsal_validation.agreement import recordings
from tests.rehearsal_validation.page import PAGE, page
from tests.rehearsal_validation.record import record
from tests.rehearsal_validation.runs import KINDS, RUNS


def _interrupt(_: int, __: FrameType | None) -> None:
    """Both signals end what was started."""
    raise KeyboardInterrupt


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
        for number in (signal.SIGTERM, signal.SIGINT):  # a shell's background jobs inherit that SIGINT is ignored
            signal.signal(number, _interrupt)
        try:
            record(options.kind, options.runs.split(","), lambda line: print(line, file=sys.stderr, flush=True))
        except KeyboardInterrupt:
            print("ended; what was recorded whole is kept", file=sys.stderr)
            return INTERRUPTED
        return 0
    PAGE.write_text(page(recordings()), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
