"""What the pages of docs show is typed, command by command, in the order of the page, as a reader would.

A row per command: a page that gains a command, or words one anew, fails here until the row is there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from controller.world.real.ports import free_ports
from tests.local.conftest import Up
from tests.typed.commands import ROOT, Typed, of_page
from tests.typed.typist import Seen, Typist

pytestmark = pytest.mark.timeout(600)

Row = tuple[str, Seen]
SERVED: Final = r"^http://127\.0\.0\.1:\d+/$"
RECORDED: Final = ROOT / "tests" / "kraft_runs"

#: On a cluster of `kwob up --brokers 3 --racks a,b,c` with a topic orders of six partitions, page after page.
ON_A_CLUSTER: Final[Mapping[str, Sequence[Row]]] = {
    "watching.md": [
        ("kwob logs --follow", Seen(r"partition\.leader_elected orders-0", code=130, stays=True)),
        ("kwob logs --topic orders-3 --since 5m", Seen(r"follower\.started orders-3 leader=\d")),
        ("kwob logs --event 'isr.*,partition.*' --level info", Seen(r"partition\.leader_elected orders-\d")),
        ("kwob logs --broker 2 --json", Seen(r'^\{.*"broker_id": ?2')),
        ("kwob logs --events", Seen(r"^isr\.expanded +\S")),
        ("kwob check", Seen("every partition has a leader")),
        ("kwob wait --until full-isr,no-moves --timeout 2m", Seen("")),
        ("kwob why orders", Seen("nothing is wrong")),
    ],
    "snapshot.md": [
        ("kwob snapshot --bootstrap-server localhost:9092 -o cluster.yaml --for 60s",
         Seen("brokers: 3, topics: 1, partitions: 6", put=(("--for 60s", "--for 2s"),))),
        ("kwob up --like cluster.yaml --scale 1/1000 --data copy",
         Seen("^ready", stays=True, put=(("--data", "--bootstrap-port {port} --zookeeper-port {other} --data"),))),
    ],
    "ui.md": [
        ("kwob ui", Seen(SERVED, stays=True, put=(("kwob ui", "kwob ui --port 0"),))),
        ("kwob ui --actions", Seen(SERVED.replace("$", "#token="), stays=True, put=(("ui", "ui --port 0"),))),
        ("kwob ui --bootstrap-server kafka:9092", Seen(SERVED, stays=True, put=(("ui", "ui --port 0"),))),
        ("kwob ui --rehearsal before --rehearsal after", Seen(SERVED, stays=True, put=(("ui", "ui --port 0"),))),
        ("kwob ui --rehearsal runs", Seen(SERVED, stays=True, put=(("ui", "ui --port 0"),))),
        ("kwob ui --report replay/report.html", Seen(SERVED, stays=True, put=(("ui", "ui --port 0"),))),
    ],
    "faults.md": [
        ("kwob fault pause-replication --broker 3 --topic orders", Seen("^f1 ")),
        ("kwob fault slow-link --broker 1 --peer 2 --delay-ms 80 --jitter-ms 40 --for 2m", Seen("^f2 ")),
        ("kwob fault slow-disk --rack b --bytes-per-second 500000", Seen("^f3 ")),
        ("kwob fault api --broker 1 --api Produce --action error --error-code NOT_LEADER_OR_FOLLOWER --every 10",
         Seen("^f4 ")),
        ("kwob fault kill --rack b --in 10s --for 30s", Seen("^f5 ")),
        ("kwob fault list", Seen("pause_replication")),
        ("kwob fault clear f2", Seen("^f3 ")),
        ("kwob fault clear", Seen("no fault")),
        ("kwob fault run scenario.yaml", Seen("stop")),
    ],
}  # fmt: skip

#: With `cluster.yaml` and `plan.yaml`, which are those of cluster-file.md and rehearse.md.
REHEARSED: Final[Mapping[str, Sequence[Row]]] = {
    "rehearse.md": [
        ("kwob rehearse plan.yaml --cluster cluster.yaml --out rehearsal", Seen("rehearsal")),
        ("kwob rehearse plan.yaml --fail-on offline,under-min-isr,'eta>2h'", Seen("No partition goes offline")),
        ("kwob rehearse compare rehearsal-10MB rehearsal-50MB", Seen("rehearsal-50MB")),
        ("kwob rehearse sweep plan.yaml --each rack --for 10m --out sweep", Seen("rack")),
        # Who comes back after ten minutes, or has nothing at the start, fills any link: the plan alone.
        (
            "kwob plan plan.yaml --max-link 70% --out chosen.yaml",
            Seen("chosen.yaml", put=(("plan.yaml", "alone.yaml"),)),
        ),
    ],
}

SIMULATED: Final[Mapping[str, Sequence[Row]]] = {
    "simulation.md": [
        ("kwob sim run --seeds 0..999", Seen("2 worlds", put=(("0..999", "0..1"),))),
        ("kwob sim run --minutes 10", Seen("worlds", put=(("--minutes 10", "--minutes 0.05 --workers 1"),))),
        ("kwob sim repeat 149", Seen("149")),
        ("kwob sim shrink 149", Seen("149")),
        ("kwob sim repeat 149 --only 6,9,12 --set brokers=3", Seen("149")),
        ("kwob sim repeat 149 --json > world.json", Seen("")),
        ("kwob sim repeat 149 --plan world.json", Seen("149")),
    ],
}

MONITORED: Final[Mapping[str, Sequence[Row]]] = {
    "monitoring.md": [
        ("kwob up --controllers 1 --metrics-port 9400",
         Seen("^ready", stays=True,
              put=(("9400", "{metrics}"), ("up", "up --bootstrap-port {port} --zookeeper-port {other}")))),
    ],
}  # fmt: skip

#: Of README and of the pages of the replay: what they say of a real cluster's files, with recorded ones.
REPLAYED: Final[Mapping[str, Sequence[Row]]] = {
    "README.md": [
        ("kwob replay run --kafka-logs /var/log/kafka --time-zone Europe/Berlin --out results",
         Seen("report.html", put=(("/var/log/kafka", str(RECORDED / "elr" / "logs-1")), ("results", "of-logs")))),
        ("kwob replay run --metadata-log kafka-data/__cluster_metadata-0 --out results",
         Seen("report.html", put=(("kafka-data", str(RECORDED / "elr" / "metadata")),))),
    ],
}  # fmt: skip


def typed_here() -> set[Typed]:
    """What this file types."""
    tables = (ON_A_CLUSTER, REHEARSED, SIMULATED, MONITORED, REPLAYED)
    return {Typed(page, line) for table in tables for page, rows in table.items() for line, _ in rows}


def block(page: str, language: str = "yaml") -> str:
    """The first block of that language on a page."""
    found = re.search(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def type_all(typist: Typist, rows: Sequence[Row]) -> None:
    for line, seen in rows:
        typist.type(line, seen)


@pytest.mark.parametrize("table", [ON_A_CLUSTER, REHEARSED, SIMULATED], ids=["cluster", "rehearsals", "worlds"])
def test_a_page_is_typed_whole_and_in_its_order(table: Mapping[str, Sequence[Row]]) -> None:
    for page, rows in table.items():
        assert [line for line, _ in rows] == [each.line for each in of_page(page) if not each.is_synopsis]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typist]:
    """In the folder where `kwob up` runs."""
    folder = tmp_path_factory.mktemp("reader")
    first, _, _, zookeeper, port, _, _, other = free_ports(8)
    ports = ("--bootstrap-port", str(first), "--zookeeper-port", str(zookeeper))
    up = Up(folder / "kwob-data", "--brokers", "3", "--controllers", "2", "--racks", "a,b,c", *ports)
    try:
        up.wait_for("ready")
        address = f"127.0.0.1:{first}"
        typist = Typist(folder, {"localhost:9092": address, "kafka:9092": address})
        words = "--create --topic orders --partitions 6 --replication-factor 3"
        typist.type(f"kwob topics --bootstrap-server localhost:9092 {words}", Seen("Created topic orders"))
        typist.put = {**typist.put, "{port}": str(port), "{other}": str(other)}
        yield typist
    finally:
        up.interrupt()


def rehearsal_files(folder: Path) -> None:
    """What rehearse.md has: the cluster, the plan, and a file for `kafka-reassign-partitions`."""
    (folder / "cluster.yaml").write_text(block("cluster-file.md"))
    (folder / "plan.yaml").write_text(block("rehearse.md"))
    moved = '{"version": 1, "partitions": [{"topic": "orders", "partition": 2, "replicas": [2, 1, 3]}]}'
    (folder / "plan.json").write_text(moved)


@pytest.mark.pages
@pytest.mark.parametrize("page", ON_A_CLUSTER)
def test_what_a_page_shows_of_a_cluster(reader: Typist, page: str) -> None:
    if page == "ui.md":
        rehearsal_files(reader.folder)
        reader.type("kwob rehearse plan.yaml --out before", Seen(""))
        for copy in ("after", "runs/one", "runs/two"):
            shutil.copytree(reader.folder / "before", reader.folder / copy)
        (reader.folder / "replay").mkdir()
        (reader.folder / "replay" / "report.html").write_text("<p>a report")
    if page == "faults.md":
        tenth = re.sub(r"(\d)0?s\b", lambda found: f"{int(found[0][:-1]) / 10}s", block(page))
        (reader.folder / "scenario.yaml").write_text(tenth)
    type_all(reader, ON_A_CLUSTER[page])


@pytest.mark.pages
def test_what_a_page_shows_of_rehearsals(tmp_path: Path) -> None:
    rehearsal_files(tmp_path)
    typist = Typist(tmp_path)
    alone = re.sub(r"^.*do: (?:kill|rolling_restart).*\n", "", block("rehearse.md"), flags=re.MULTILINE)
    (tmp_path / "alone.yaml").write_text(alone.replace("cluster.yaml", "whole.yaml"))
    whole = block("cluster-file.md").replace("isr: [2, 3], leader: 2, ", "")
    (tmp_path / "whole.yaml").write_text(whole.replace("[3, 1, 2] ", "{replicas: [3, 1], bytes: 4000000000}"))
    for rate in ("10MB", "50MB"):
        (tmp_path / f"{rate}.yaml").write_text(block("rehearse.md").replace("throttle: 50MB", f"throttle: {rate}"))
        typist.type(f"kwob rehearse {rate}.yaml --out rehearsal-{rate}", Seen(""))
    type_all(typist, REHEARSED["rehearse.md"])


@pytest.mark.pages
def test_what_a_page_shows_of_simulated_worlds(tmp_path: Path) -> None:
    type_all(Typist(tmp_path), SIMULATED["simulation.md"])


@pytest.mark.pages
def test_what_a_page_shows_of_metrics(tmp_path: Path) -> None:
    port, _, _, other, metrics, _, _, _ = free_ports(8)
    put = {"{port}": str(port), "{other}": str(other), "{metrics}": str(metrics)}
    type_all(Typist(tmp_path, put), MONITORED["monitoring.md"])


@pytest.mark.kafka
def test_what_readme_shows_of_the_files_of_a_real_cluster(tmp_path: Path) -> None:
    type_all(Typist(tmp_path), REPLAYED["README.md"])
