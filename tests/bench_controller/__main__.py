"""The controller beside Kafka's and beside its own floor, in turns: `make bench`.

Runs the benchmark in the folder `--bench`, which is not part of this repository, with one contender more: `floor`,
which takes office without deciding anything. All arguments but those below go to the benchmark; without any: Kafka
beside this, 10 brokers, 10,000 partitions.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench_controller.floor import REAL

REPOSITORY: Final = Path(__file__).resolve().parents[2]
RUN: Final = (
    "run --zookeeper {zk} --controller-id {id} --listener 127.0.0.1:{port} "
    "--override auto.leader.rebalance.enable=false"
)
DEFAULT: Final = ["--controller", "kafka", "--brokers", "10", "--topics", "200", "--partitions-per-topic", "50"]
#: What the benchmark calls the controller of `--controller-command`.
OURS: Final = "command"
FLOOR: Final = "floor"
FAILOVER: Final = "failover-warm"
#: Of a failover to its floor.
AIM: Final = 1.5
#: How far two counts of the same reads may differ: the benchmark's own looks at ZooKeeper are among them.
SAME: Final = 0.02
LOOKS_PER_S: Final = 50


class Bench:
    """The benchmark's rounds with one contender more."""

    def __init__(self, module: Any, prefix: str) -> None:
        self._module, self._prefix = module, prefix
        self._contenders, self._one_round = module.controllers, module.one_round
        self.rounds: list[dict[str, Any]] = []

    def run(self, arguments: list[str]) -> int:
        """Returns the benchmark's exit code."""
        self._module.controllers = self._with_floor
        self._module.one_round = self._round
        command = f"{self._prefix}{sys.executable} -m controller {RUN}"
        return int(self._module.main(["--controller-command", command, *arguments]))

    def _with_floor(self, args: argparse.Namespace) -> list[str]:
        asked = "failover" in args.scenarios and args.warm > 0
        return [*self._contenders(args), *([FLOOR] if asked else [])]

    def _round(self, args: argparse.Namespace, shape: Any, name: str, stubs: Any, ports: Any) -> dict[str, Any]:
        if name == FLOOR:
            args = copy.copy(args)
            args.controller_command = f"{sys.executable} -m tests.bench_controller.floor {RUN}"
            args.scenarios, args.warm = ["failover"], args.warm + REAL - 1
        one: dict[str, Any] = self._one_round(args, shape, name, stubs, ports)
        if name == FLOOR:  # the real ones are not the floor
            one["outcomes"] = one["outcomes"][REAL:]
        self.rounds.append(one)
        return one


def figures(rounds: list[dict[str, Any]], name: str) -> dict[str, list[float]]:
    """Of all warm failovers of one contender: seconds, CPU, operations and bytes."""
    done = [o for r in rounds if r["controller"] == name for o in r["outcomes"] if o["name"] == FAILOVER]
    return {
        "seconds": [o["seconds"] for o in done],
        "CPU s": [o["cpu_s"]["controller"] for o in done],
        "ZooKeeper reads": [o["zookeeper"]["reads"] for o in done],
        "MB to brokers": [sum(o["bytes"].values()) / 1e6 for o in done],
    }


def compared(rounds: list[dict[str, Any]]) -> Table:
    """Our warm failovers beside the floor's, medians. Raises: ValueError, when the floor did not do the same."""
    ours, floor = figures(rounds, OURS), figures(rounds, FLOOR)
    if not ours["seconds"] or not floor["seconds"]:
        raise ValueError("no warm failover of both was measured")
    table = Table(title=f"Warm failover, beside the same reads and bytes without deciding (aim: {AIM})")
    for column in ("", "this", "floor", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    middle = {what: (statistics.median(ours[what]), statistics.median(floor[what])) for what in ours}
    for what, (mine, least) in middle.items():
        table.add_row(what, f"{mine:.2f}", f"{least:.2f}", f"{mine / least:.2f}")
    longer_s = max(0.0, middle["seconds"][0] - middle["seconds"][1])
    allowed = {"MB to brokers": 0.01, "ZooKeeper reads": LOOKS_PER_S * longer_s + SAME * middle["ZooKeeper reads"][1]}
    for what, most in allowed.items():
        if abs(middle[what][0] - middle[what][1]) > most:
            raise ValueError(f"the floor did not do the same: {what} {middle[what][0]:.2f} and {middle[what][1]:.2f}")
    return table


def main() -> int:
    """Runs, prints, and returns 0, or 1 where the benchmark found a problem or there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__, add_help=False)
    parser.add_argument("--bench", type=Path, required=True)
    parser.add_argument("--prefix", default="", help="put before the command of our controller")
    parser.add_argument("--floor-json", type=Path, help="leave all rounds there, the floor's among them")
    own, arguments = parser.parse_known_args()
    sys.path.insert(0, str(own.bench))
    bench = Bench(importlib.import_module("controller_bench"), own.prefix)
    code = bench.run(arguments or DEFAULT)
    if own.floor_json:
        own.floor_json.write_text(json.dumps(bench.rounds, indent=1))
    if all(one["controller"] != FLOOR for one in bench.rounds):
        return code
    try:
        Console(width=100).print(compared(bench.rounds))
    except ValueError as error:
        print(f"make bench: {error}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
