"""Pages of metrics as rows: name, labels without their values, type. A recorded one, and those of our programs.

    python -m tests.broker_metrics.pages SCRAPE > tests/broker_metrics/kafka-3.9.1.txt

records what jmx_prometheus_javaagent (with examples/kafka-2_0_0.yml of jmx_exporter) says of a real broker.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RECORDED: Final = Path(__file__).with_name("kafka-3.9.1.txt")
_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Sample = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, order=True)
class Row:
    """One metric with one set of labels."""

    name: str
    labels: tuple[str, ...]
    kind: str

    def __str__(self) -> str:
        return f"{self.name}{{{','.join(self.labels)}}} {self.kind}"


def samples(page: str) -> dict[Sample, float]:
    """The values of a page, by name and labels; no sample may be there twice."""
    found: dict[Sample, float] = {}
    for line in page.splitlines():
        if line and not line.startswith("#"):
            match = _SAMPLE.fullmatch(line.strip())
            assert match is not None, line
            key = match["name"], frozenset(_LABEL.findall(match["labels"] or ""))
            assert key not in found, f"twice: {line}"
            found[key] = float(match["value"])
    return found


def rows(page: str) -> set[Row]:
    """Kafka's metrics of a page. The sums that Kafka's timers lack are left out.

    A timer's _count is a counter, whatever the exporter calls it: its version 0.20 writes that, version 1 adds
    _total, which is dropped here.
    """
    found = set()
    for name, labels in samples(page):
        if not name.startswith("kafka_") or name.endswith("_sum"):
            continue
        plain = name.removesuffix("_total") if name.endswith("_count_total") else name
        is_counter = name.endswith(("_total", "_count")) and not plain.endswith("_yammer_metrics_count")
        found.add(Row(plain, tuple(sorted(key for key, _ in labels)), "counter" if is_counter else "gauge"))
    return found


def recorded() -> set[Row]:
    """What was recorded of Kafka 3.9.1."""
    found = set()
    for line in RECORDED.read_text().splitlines():
        if not line.startswith("#"):
            what, kind = line.split(" ")
            name, labels = what.rstrip("}").split("{")
            found.add(Row(name, tuple(filter(None, labels.split(","))), kind))
    return found


def main() -> None:
    """Prints a scrape's rows."""
    print("# A broker of Kafka 3.9.1 that is controller, scraped through jmx_prometheus_javaagent with kafka-2_0_0.yml")
    for row in sorted(rows(Path(sys.argv[1]).read_text())):
        print(row)


if __name__ == "__main__":
    main()
