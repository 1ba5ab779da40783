"""The `kwob` command: one table, lazily imported; and the commands about a data folder."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from controller import cli
from controller.demo import command as demo
from controller.local import cluster, cluster_file, control, fault, place, status, up
from controller.local import plan as local_plan
from controller.local.plan import ClusterPlan, plan_cluster
from controller.world.real.ports import free_ports


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_subcommand_is_there(name: str) -> None:
    module, _, function = cli.COMMANDS[name].target.partition(":")
    assert importlib.util.find_spec(module) is not None
    assert callable(attrgetter(function)(importlib.import_module(module)))


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in cli.COMMANDS)
    headings = [line for line in said.splitlines() if line.endswith(":")]
    assert headings == [f"{each}:" for each in dict.fromkeys(command.heading for command in cli.COMMANDS.values())]


def test_without_or_with_a_wrong_subcommand_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert cli.main(["topic"]) == 2
    assert "no command 'topic'" in capsys.readouterr().err


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = "import sys; from controller import cli; cli.main(['--help']); print([m for m in sys.modules if m in %r])"
    heavy = ["pyspark", "kazoo", "kio", "confluent_kafka", "rich", "pydantic"]
    ran = subprocess.run([sys.executable, "-c", code % heavy], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_tool_of_the_protocol_loads_nothing_that_draws_logs_or_speaks_to_zookeeper() -> None:
    """Half of what `kwob topics --list` took to start was rich and structlog. All wait side by side."""
    code = "import sys; from controller import cli; cli.main(%r); print([m for m in sys.modules if m in %r])"
    heavy = ["pyspark", "kazoo", "confluent_kafka", "rich", "structlog", "pydantic", "numpy", "jinja2"]
    running = []
    for words in (["--list"], ["--describe", "--topic", "t"], ["--create", "--topic", "t", "--partitions", "1"]):
        tool = ["topics", "--bootstrap-server", "127.0.0.1:1", *words]
        command = [sys.executable, "-c", code % (tool, heavy)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for ran in running:
        printed, complaints = ran.communicate(timeout=120)
        assert ran.returncode == 0 and printed.splitlines()[-1] == "[]", (printed, complaints)


@pytest.mark.parametrize("words", [["--list"], ["--describe", "--topic", "t"]])
def test_a_tool_finds_the_cluster_of_the_data_folder(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, why = cli.COMMANDS["topics"], cli.COMMANDS["why"]
    monkeypatch.setenv("KWOB_DATA", str(tmp_path))
    assert cli.with_bootstrap(topics, words) == words, "there is no cluster"
    write(tmp_path)
    assert cli.with_bootstrap(topics, words) == [*words, "--bootstrap-server", "127.0.0.1:1,127.0.0.1:2"]
    for named in (["--bootstrap-server", "x:1"], ["--bootstrap-server=x:1"], ["--zookeeper", "x:1"], ["--help"]):
        assert cli.with_bootstrap(topics, [*words, *named]) == [*words, *named]
    assert cli.with_bootstrap(topics, []) == []
    assert cli.with_bootstrap(why, words) == words


@pytest.mark.parametrize(
    ("tool", "words", "is_named"),
    [
        ("get-offsets", ["--broker-list", "x:1", "--topic", "t"], True),
        ("log-dirs", ["--describe", "--broker-list", "1,2"], False),
        ("reassign-partitions", ["--generate", "--broker-list=1,2", "--topics-to-move-json-file", "f"], False),
    ],
)
def test_a_list_of_broker_ids_names_no_cluster(
    tool: str, words: list[str], is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KWOB_DATA", str(tmp_path))
    write(tmp_path)
    assert ("--bootstrap-server" in cli.with_bootstrap(cli.COMMANDS[tool], words)) is not is_named


@pytest.mark.parametrize("words", [["status"], ["logs", "--events"]])
def test_a_reader_that_has_seen_enough_ends_a_command_as_a_closed_pipe_does(words: list[str], tmp_path: Path) -> None:
    """Whatever prints, so that `| head -1` does not look as if there were no cluster."""
    write(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "controller.cli", *words, "--data", str(tmp_path)]
    try:
        ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (cli.PIPE_CLOSED, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_who_closes_a_standard_stream_gets_the_rest(closed: str, tmp_path: Path) -> None:
    """And no file that is opened later takes its place: what is printed would go there."""
    path = tmp_path / "cluster.yaml"
    words = [sys.executable, "-m", "controller.cli", "snapshot", "--generate", "--topics", "1", "-o", str(path)]
    command = ["sh", "-c", f'"$@" {closed}', "sh", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    said = "" if "2>" in closed else "brokers: 6, topics: 1, partitions: 200, groups: 0\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", said)
    assert path.read_text().startswith("source: ")
    printing = subprocess.run([*command[:-1], "-"], capture_output=True, check=False, timeout=60)
    assert printing.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_output_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    words = [sys.executable, "-m", "controller.cli", "status", "--data", str(tmp_path)]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (1, "kwob status: the output cannot be written: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["completion", "bash"]])
def test_so_is_what_no_subcommand_prints(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "controller.cli", *words]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    expected = f"kwob {words[0]}: the output cannot be written: No space left on device\n"
    assert (ran.returncode, ran.stderr) == (1, expected)


def test_a_terminal_of_few_characters_is_no_reason_to_end(tmp_path: Path) -> None:
    write(tmp_path)
    words = [sys.executable, "-m", "controller.cli", "fault", "row", "\u2603", "--data", str(tmp_path)]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run(words, capture_output=True, env=ascii_only, check=False, timeout=60)
    assert ran.returncode == 2 and b"Traceback" not in ran.stderr


# -- a data folder -----------------------------------------------------------------------------------------------------


def plan(data: Path, **changes: Any) -> ClusterPlan:
    given: dict[str, Any] = {"brokers": 2, "controllers": 1, "racks": ["a", "b"], "ports": [1, 2], "zookeeper_port": 3}
    return plan_cluster(data=data, **{**given, **changes})


def write(data: Path) -> None:
    cluster_file.write_cluster(data, cluster.Cluster(plan(data)).row())


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A folder that this process holds as `kwob up` does."""
    write(tmp_path)
    with place.own_folder(tmp_path):
        yield tmp_path


def test_racks_are_given_in_turn_and_controllers_have_ids_of_their_own(tmp_path: Path) -> None:
    wide = plan(tmp_path, brokers=3, controllers=2, ports=[1, 2, 3])
    assert [(b.broker_id, b.rack) for b in wide.brokers] == [(1, "a"), (2, "b"), (3, "a")]
    assert wide.controller_ids == (901, 902)
    assert plan(tmp_path, racks=[]).brokers[0].rack is None


def test_controllers_too_write_a_trace(tmp_path: Path) -> None:
    """Without their rows a report knows no controller epochs."""
    argv = plan(tmp_path).controller_arguments(901)
    assert argv[argv.index("--trace-dir") + 1] == str(tmp_path / "traces")


def test_status_json_has_the_fixed_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = cluster.Cluster(plan(tmp_path)).row()
    row.brokers[0].pid = os.getpid()
    row.zookeeper = "127.0.0.1:1"
    cluster_file.write_cluster(tmp_path, row)
    assert cluster_file.read_cluster(tmp_path) == row
    shape = json.loads(row.model_dump_json())
    assert list(shape) == ["bootstrap", "zookeeper", "controllers", "brokers"]
    assert list(shape["controllers"][0]) == ["id", "pid", "active"]
    assert list(shape["brokers"][0]) == ["id", "pid", "rack", "listener", "log_dirs"]


def test_status_says_that_zookeeper_is_away(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = cluster.Cluster(plan(running)).row()
    row.brokers[0].pid, row.zookeeper = os.getpid(), "127.0.0.1:1"
    cluster_file.write_cluster(running, row)
    assert status.main(["--data", str(running)]) == 1
    assert "problem: ZooKeeper at 127.0.0.1:1 does not answer" in capsys.readouterr().out
    assert status.main(["--data", str(running), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


def test_a_process_that_is_gone_has_no_pid(tmp_path: Path) -> None:
    row = cluster.Cluster(plan(tmp_path)).row()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    row.brokers[0].pid = gone.pid
    cluster_file.write_cluster(tmp_path, row)
    assert cluster_file.read_cluster(tmp_path).brokers[0].pid is None


@pytest.mark.parametrize(
    ("main", "argv"),
    [
        (status.main, []),
        (up.down_main, []),
        (control.broker_main, ["kill", "1"]),
        (fault.main, ["list"]),
    ],
    ids=["status", "down", "broker", "fault"],
)
def test_a_folder_without_a_cluster_is_told_in_one_line(
    main: Any, argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*argv, "--data", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "kwob up" in said


def test_a_broken_cluster_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / cluster_file.CLUSTER_FILE).write_text("{}")
    assert status.main(["--data", str(tmp_path)]) == 1
    assert "is not a cluster file of kwob (ValidationError): remove it and name" in capsys.readouterr().err


REFUSED_UP = [
    ("an unknown setting", ["--override", "num.partition=3"], "did you mean num.partitions"),
    ("a setting that up gives itself", ["--override", "log.dirs=x,y"], "--log-dirs N gives each broker"),
    ("a rack of all brokers", ["--override", "broker.rack=a"], "--racks A,B,C gives them to the brokers"),
    *(
        (
            f"the address of {brokers}",
            ["--brokers", brokers, "--override", "advertised.listeners=PLAINTEXT://h:9092"],
            "advertised.listeners is not for --override here: all programs would have the same one",
        )
        for brokers in "12"
    ),
    ("a port in use", ["--bootstrap-port", "{port}"], "port {port} for broker 1 cannot be used"),
    ("a page's port in use", ["--metrics-port", "{port}"], "port {port} for the metrics of broker-1 cannot be used"),
    ("a port for two", ["--metrics-port", "{free}"], "port {free} is for broker 1 and the metrics of broker-1; choose"),
    ("ZooKeeper's port in use", ["--zookeeper-port", "{port}"], "port {port} for ZooKeeper cannot be used"),
]


@pytest.mark.parametrize(("argv", "message"), [row[1:] for row in REFUSED_UP], ids=[row[0] for row in REFUSED_UP])
def test_up_refuses_in_one_line(
    argv: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with taken_port() as port:
        base = ["--brokers", "1", "--data", str(tmp_path / "data")]
        free, zookeeper_port = free_ports(2)
        base += ["--bootstrap-port", str(free), "--zookeeper-port", str(zookeeper_port)]
        words = [word.format(port=port, free=free) for word in argv]
        assert up.main([*base, *words]) == (2 if "--override" in argv else 1)
        said = capsys.readouterr().err
        assert message.format(port=port, free=free) in said
        assert said.count("\n") == 1


def test_up_refuses_a_folder_too_deep_for_a_socket_before_it_starts_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = tmp_path / ("d" * 100)
    assert up.main(["--data", str(deep)]) == 1
    assert "is too long for a socket; choose a shorter folder with --data" in capsys.readouterr().err
    assert not deep.exists()


def test_up_says_which_file_is_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    (tmp_path / "logs").write_text("")
    assert up.main(["--data", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"kwob up: {tmp_path / 'logs'}: a file is where a folder is needed\n"


def test_up_goes_on_with_what_the_folder_had(tmp_path: Path) -> None:
    many = plan(tmp_path, brokers=3, controllers=2, ports=[1, 2, 3], racks=["a", "b", "c"], log_dir_count=2)
    cluster_file.write_cluster(tmp_path, cluster.Cluster(many).row())
    again, remarks = up.cluster_plan(up.parser_of_up().parse_args(["--data", str(tmp_path)]))
    assert [(b.broker_id, b.rack) for b in again.brokers] == [(1, "a"), (2, "b"), (3, "c")]
    assert (again.controller_ids, again.log_dir_count, remarks) == ((901, 902), 2, [])
    assert [b.port for b in again.brokers] == [1, 2, 3]
    fewer, remarks = up.cluster_plan(up.parser_of_up().parse_args(["--data", str(tmp_path), "--brokers", "2"]))
    assert [b.rack for b in fewer.brokers] == ["a", "b"]
    assert "1 broker of this folder (3) will not run" in remarks[0] and "--brokers 3" in remarks[0]


def test_up_starts_again_with_the_ports_and_settings_that_it_had(tmp_path: Path) -> None:
    settings = ["num.partitions=3", "min.insync.replicas=2"]
    had = plan(tmp_path, ports=[11, 12], settings=settings, metrics_port=21, broker_processes=1)
    cluster_file.write_cluster(tmp_path, cluster.Cluster(had).row())
    cluster_file.write_start(tmp_path, cluster.Cluster(had).start_row())
    again, remarks = up.cluster_plan(up.parser_of_up().parse_args(["--data", str(tmp_path)]))
    assert again == had
    assert remarks == ["set as before: num.partitions=3, min.insync.replicas=2; --override says otherwise"]
    argv = ["--bootstrap-port", "31", "--zookeeper-port", "32", "--metrics-port", "33", "--broker-processes", "2"]
    argv += ["--override", "num.partitions=5"]
    other, _ = up.cluster_plan(up.parser_of_up().parse_args(["--data", str(tmp_path), *argv]))
    assert [b.port for b in other.brokers] == [31, 32]
    assert (other.zookeeper_port, other.metrics_port, other.broker_processes) == (32, 33, 2)
    assert other.settings == ("min.insync.replicas=2", "num.partitions=5")


def test_up_says_which_file_of_its_folder_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    (tmp_path / cluster_file.START_FILE).write_text("{")
    assert up.main(["--data", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{tmp_path / 'start.json'} cannot be read" in said


def test_several_log_dirs_of_a_broker(tmp_path: Path) -> None:
    two = plan(tmp_path, log_dir_count=2)
    assert [path.name for path in two.log_dirs(1)] == ["data", "data-2"]
    assert cluster.Cluster(two).row().brokers[0].log_dirs == [str(path) for path in two.log_dirs(1)]


def test_up_leaves_a_folder_of_something_else_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    assert up.main(["--data", str(tmp_path)]) == 1
    assert "is no data folder of kwob" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_one_cluster_per_folder(tmp_path: Path) -> None:
    lock = place.take_folder(tmp_path)
    try:
        write(tmp_path)
        assert place.lock_owner(tmp_path / place.LOCK_FILE) == os.getpid()
        with pytest.raises(cluster_file.ClusterError, match=r"runs in .* already"):
            place.take_folder(tmp_path)
    finally:
        os.close(lock)
    assert place.lock_owner(tmp_path / place.LOCK_FILE) is None


def test_two_that_look_at_once_do_not_take_each_other_for_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file still has the id of the last owner, which kwob down would end, whatever it is by now."""
    os.close(place.take_folder(tmp_path))
    flock, inner = fcntl.flock, list[int | None]()

    def look_again(lock: Any, operation: int) -> None:
        flock(lock, operation)
        if not inner:
            inner.append(-1)
            inner.append(place.lock_owner(tmp_path / place.LOCK_FILE))

    monkeypatch.setattr(fcntl, "flock", look_again)
    assert place.lock_owner(tmp_path / place.LOCK_FILE) is None
    assert inner[1:] == [None]


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# -- commands to a running `kwob up` -----------------------------------------------------------------------------------


@dataclass
class FakeCluster:
    """Keeps what it was asked for."""

    plan: ClusterPlan
    done: list[tuple[str, int]] = field(default_factory=list)

    async def kill_broker(self, broker_id: int) -> None:
        self.done.append(("kill", broker_id))

    async def start_broker(self, broker_id: int) -> None:
        raise cluster_file.ClusterError("broker-1 runs already")

    async def stop_broker(self, broker_id: int) -> bool:
        self.done.append(("stop", broker_id))
        return broker_id != 2

    async def kill_controller(self, controller_id: int) -> None:
        self.done.append(("kill", controller_id))


def asked(data: Path, *commands: control.ProcessCommand) -> tuple[list[str], FakeCluster]:
    """What a cluster says to commands that come one after another."""
    fake = FakeCluster(plan(data))

    async def main() -> list[str]:
        async with control.serve_control(fake):
            said = []
            for command in commands:
                try:
                    said.append(await asyncio.to_thread(control.ask, data, command))
                except cluster_file.ClusterError as error:
                    said.append(f"refused: {error}")
            return said

    return asyncio.run(main()), fake


def test_commands_are_done_and_answered(tmp_path: Path) -> None:
    said, fake = asked(
        tmp_path,
        control.ProcessCommand(action="kill", role="broker", id=1),
        control.ProcessCommand(action="stop", role="broker", id=2),
        control.ProcessCommand(action="start", role="broker", id=1),
        control.ProcessCommand(action="kill", role="controller", id=901),
    )
    assert said == [
        "broker 1 killed",
        "broker 2 did not end by itself in time and was killed",
        "refused: broker-1 runs already",
        "controller 901 killed",
    ]
    assert fake.done == [("kill", 1), ("stop", 2), ("kill", 901)]


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b'{"action": "explode", "broker": 1}\n', b"x" * 10_000 + b"\n"])
def test_garbage_is_refused_and_the_next_command_served(line: bytes, tmp_path: Path) -> None:
    fake = FakeCluster(plan(tmp_path))

    def send() -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / control.SOCKET_NAME))
            with contextlib.suppress(OSError):
                connection.sendall(line)
                return connection.makefile().readline()
        return ""

    async def main() -> None:
        async with control.serve_control(fake):
            answer = await asyncio.to_thread(send)
            assert answer == "" or "error" in json.loads(answer)
            good = control.ProcessCommand(action="kill", role="broker", id=1)
            assert await asyncio.to_thread(control.ask, tmp_path, good) == "broker 1 killed"

    asyncio.run(main())


def test_without_a_running_up_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(cluster_file.ClusterError, match="no kwob up runs"):
        control.ask(tmp_path, control.ProcessCommand(action="kill", role="broker", id=1))


# -- faults ------------------------------------------------------------------------------------------------------------


def test_faults_add_up_and_are_cleared(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(running)]
    assert fault.main(["pause-replication", "--broker", "2", "--topic", "t", *data]) == 0
    row = '{"fault": "api", "broker": 1, "api": "Fetch", "action": "drop"}'
    assert fault.main(["row", row, *data]) == 0
    rows = [json.loads(line) for line in (running / fault.FAULT_FILE).read_text().splitlines()]
    assert [(row["fault"], row["broker"]) for row in rows] == [("pause_replication", 2), ("api", 1)]
    assert fault.main(["clear", *data]) == 0
    assert (running / fault.FAULT_FILE).read_text() == ""
    assert capsys.readouterr().out.endswith("no fault is in force\n")


@pytest.mark.parametrize(
    "row", ["", "[]", '{"fault": "rust"}', '{"fault":"expire_session"}\n{"fault":"expire_session"}']
)
def test_a_row_that_is_none_is_refused(row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    assert fault.main(["row", row, "--data", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("kwob fault: ")
    assert not (tmp_path / fault.FAULT_FILE).exists()


# -- the demo's folder -------------------------------------------------------------------------------------------------


def test_the_demo_refuses_a_folder_that_holds_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("x")
    assert demo.main(["--out", str(tmp_path), "--overwrite"]) == 1
    assert "is not the folder of a demo" in capsys.readouterr().err
    (tmp_path / demo.LOG_NAME).touch()
    assert demo.main(["--out", str(tmp_path)]) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "x").exists()


# -- brokers that share processes --------------------------------------------------------------------------------------


SHARING = [
    ("one each up to ten", 3, None, [1, 1, 1]),
    ("as told", 5, 2, [3, 2]),
    ("no more processes than brokers", 2, 9, [1, 1]),
    ("all in one", 20, 1, [20]),
]


@pytest.mark.parametrize(("_", "brokers", "processes", "sizes"), SHARING, ids=[case[0] for case in SHARING])
def test_how_brokers_share_processes(
    _: str, brokers: int, processes: int | None, sizes: list[int], tmp_path: Path
) -> None:
    shared = plan(tmp_path, brokers=brokers, ports=range(brokers), broker_processes=processes)
    assert [len(group) for group in shared.groups] == sizes
    assert [b for group in shared.groups for b in group] == list(shared.brokers)


def test_many_brokers_share_few_processes_and_ask_less_often(tmp_path: Path) -> None:
    many = plan(tmp_path, brokers=100, ports=range(100))
    assert 2 <= len(many.groups) <= max(2, os.cpu_count() or 1)
    assert many.broker_settings == ("replica.fetch.wait.max.ms=25000",)
    told = plan(tmp_path, brokers=100, ports=range(100), settings=["replica.fetch.wait.max.ms=500"])
    assert told.broker_settings == ("replica.fetch.wait.max.ms=500",)
    assert plan(tmp_path, brokers=3, ports=[1, 2, 3]).broker_settings == ()


def test_groups_of_few_brokers_need_no_more_than_there_are(tmp_path: Path) -> None:
    """Kafka's default of three replicas leaves one or two brokers without a __consumer_offsets, and without groups."""
    for brokers in (1, 2):
        few = plan(tmp_path, brokers=brokers, ports=[1, 2], settings=["a=b"])
        assert few.broker_settings == (f"offsets.topic.replication.factor={brokers}", "a=b")
    told = plan(tmp_path, settings=["offsets.topic.replication.factor=1"])
    assert told.broker_settings == ("offsets.topic.replication.factor=1",)


def test_a_broker_that_a_fault_has_down_does_not_run(running: Path) -> None:
    row = cluster.Cluster(plan(running, brokers=2, ports=[1, 2])).row()
    for broker in row.brokers:
        broker.pid = os.getpid()
    cluster_file.write_cluster(running, row)
    assert fault.main(["kill", "--broker", "2", "--data", str(running)]) == 0
    assert fault.main(["stop", "--broker", "1", "--in", "1h", "--data", str(running)]) == 0
    assert [broker.pid for broker in cluster_file.read_cluster(running).brokers] == [os.getpid(), None]
    assert cluster_file.down_by(running / fault.FAULT_FILE, 2, "b") == "f1"


def test_too_few_processes_are_told_with_how_many_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 20_000))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    console = Console(width=500, highlight=False)
    few = plan(tmp_path, brokers=200, ports=range(200), broker_processes=2)
    up.tell_scale(few, console)
    out = capsys.readouterr().out
    assert f"may come to need {local_plan.files_needed(200, 100)} open files, and the limit is 20000" in out
    assert "--broker-processes 5)" in out
    up.tell_scale(replace(few, broker_processes=5), console)
    assert "open files" not in capsys.readouterr().out


def test_open_files_are_foreseen() -> None:
    assert local_plan.files_needed(100, 50) > 2 * 50 * 99
    assert local_plan.files_needed(3, 1) < 1024


@pytest.mark.parametrize("limit", [1024, 4096, 20_000, 1 << 20, resource.RLIM_INFINITY])
def test_processes_are_as_many_as_open_files_ask_for(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    groups = {n: plan(tmp_path, brokers=n, ports=range(n)).groups for n in (20, 200)}
    for brokers, shared in groups.items():
        most = max(map(len, shared))
        assert limit == resource.RLIM_INFINITY or local_plan.files_needed(brokers, most) <= limit or most == 1
    assert (len(groups[20]), len(groups[200])) == {1024: (2, 200), 4096: (2, 23), 20_000: (2, 5)}.get(limit, (2, 2))
