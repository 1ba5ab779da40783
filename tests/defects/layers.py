"""What runs against a planted defect: layers of tests, in their order, each with a limit of the processor's time."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.defects.catalogue import ROOT, SIMULATION

#: folder of the product -> the unit tests of that room, or files of tests elsewhere; the longest prefix counts.
UNIT: Final[dict[str, tuple[str, ...]]] = {
    "controller/core": ("core",),
    "controller/node": ("node", "core"),
    "controller/rules": ("rules", "node"),
    "controller/wire": ("wire", "log", "core"),
    "controller/wire/cluster_file": ("wire", "rehearse", "admin"),
    "controller/wire/fault_": ("faults", "tests/unit/local/test_fault_command.py", "wire"),
    "controller/world": ("world", "wire"),
    "controller/admin": ("admin",),
    "controller/local": ("local", "faults"),
    "controller/local/why_local": ("tests/unit/admin/test_why.py", "local"),
    "controller/demo": ("demo", "tests/unit/local/test_advice.py"),
    "controller/embedded": (
        "tests/local/test_embedded.py",
        "tests/local/test_embedded_shared.py",
        "tests/local/test_loop_thread.py",
        "tests/local/test_full_disk.py",
        "tests/local/test_handles.py",
        "tests/local/test_plugin_refusals.py",
    ),
    "controller/ui": tuple(
        f"tests/ui/test_{name}.py"
        for name in ("board", "flows", "looks_by_hand", "data_folder", "what_a_page_answers", "who_may_ask", "looks")
    ),
    "controller/rehearse": ("rehearse",),
    "controller/cli": ("local",),
    "controller/pytest_plugin": ("tests/local/test_plugin_refusals.py", "tests/local/test_recipes.py"),
    "broker_sim": ("broker",),
    "broker_sim/broker": ("broker", "faults"),
    "broker_sim/host": ("faults", "broker"),
    "broker_sim/isr": ("isr", "replicas", "replay/rules"),
    "broker_sim/log": ("log", "replicas"),
    "broker_sim/replicas": ("replicas", "broker"),
    "broker_sim/replicas/log_cleaner": ("log", "replicas"),
    "broker_sim/groups": ("groups", "broker"),
    "broker_sim/trace": ("replicas", "broker"),
    "broker_sim/faults": ("faults",),
    "broker_sim/fluid": ("fluid", "rehearse"),
    "broker_sim/replay": ("replay",),
    "broker_sim/replay/rules": ("replay/rules", "replay/what_if"),
    "broker_sim/replay/logs": ("replay/logs",),
    "broker_sim/replay/report": ("replay/report",),
}
#: Modules of the replay that a simulated world takes its traces through.
_REPLAYED: Final = tuple(
    f"broker_sim/replay/{name}.py"
    for name in (
        *("compare", "rules/lane", "rules/process", "rules/settings", "facts", "history", "open_spans"),
        *("sql/facts", "sql/lanes"),
    )
)
#: Modules of the tools that administrators of simulated worlds run.
_TOOLS: Final = tuple(
    f"controller/admin/reassignment/{name}.py" for name in ("execute", "verify", "throttles", "forgotten_throttles")
)
#: Rooms that no simulated world runs.
_NOT_SIMULATED: Final = (
    *("broker_sim/replay", "controller/admin", "controller/local", "controller/demo", "controller/rehearse"),
    *("controller/embedded", "controller/ui", "controller/pytest_plugin", "controller/cli", "broker_sim/fluid"),
)
#: Real sockets, processes and a real ZooKeeper: simulated worlds have others in their place.
_REAL: Final = "controller/world/real/"
_OPTIONS: Final = ("-q", "-x", "--timeout=600", "-p", "no:cacheprovider", "-m", "not zk and not spark and not slow")
_PYTEST: Final = ("-m", "pytest", *_OPTIONS)
_SCRIPTS: Final = "tests/unit/core/test_scripts.py"
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)
_SEED: Final = re.compile(r"\bseed[ =:]+(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Layer:
    """One run: its name, arguments to Python, and how long it may take. Longer counts as noticed."""

    name: str
    arguments: tuple[str, ...]
    limit_s: float


def layers_for(file: str, seeds: Sequence[int], hints: str = "") -> list[Layer]:
    """The layers for a defect in this module. Test files that share a word with it, or with the hints, come first."""
    row = max((prefix for prefix in UNIT if file.startswith(prefix)), key=len)
    folders = paths_of(row)
    unit = (*_PYTEST, f"--deselect={_SCRIPTS}", *_in_order(folders, f"{Path(file).stem} {hints}"))
    found = [Layer("unit", unit, 300)]
    if file.startswith(("controller/core", "controller/node", "controller/wire")):
        found.append(Layer("script", (*_PYTEST, _SCRIPTS), 60))
    if file in (*_REPLAYED, *_TOOLS):
        found.append(_simulation(seeds))
    elif not file.startswith(_NOT_SIMULATED):
        found.append(Layer("known failure", (*_PYTEST, "tests/known_failures"), 240))
        if not file.startswith(_REAL):
            found.append(_simulation(seeds))
    return found


def paths_of(row: str) -> list[str]:
    """Of a row of `UNIT`."""
    return [name if name.endswith(".py") else f"tests/unit/{name}" for name in UNIT[row]]


def _in_order(folders: Iterable[str], words: str) -> list[str]:
    """The test files, those first that share a word of five letters (its beginning, that is) with these, most words
    first. Each by name: of a file and its folder pytest takes the folder alone, in its own order."""
    wanted = {word[:5] for word in re.findall(r"[a-z]{5,}", words)}
    files = [path for folder in folders for path in _test_files(ROOT / folder)]
    shared = {path: len(wanted & {word[:5] for word in re.findall(r"[a-z]{5,}", path.stem)}) for path in files}
    return [path.relative_to(ROOT).as_posix() for path in sorted(shared, key=lambda path: -shared[path])]


def _test_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("test_*.py"))


def _simulation(seeds: Sequence[int]) -> Layer:
    words = ["-m", "controller.cli", "sim", "run", "--workers", "1", "--stop-at-first", "--seeds"]
    return Layer(SIMULATION, (*words, f"{seeds[0]}..{seeds[-1]}"), 60 + 10 * len(seeds))


def who_noticed(layer: Layer, code: int | None, output: str) -> str:
    """What noticed the defect: a test, a seed, the limit of time (no `code`); or nothing, as an empty text.

    Raises: RuntimeError, where the layer could not be run.
    """
    if code == 0:
        return ""
    if code is None:
        return f"more than {layer.limit_s:.0f} s"
    if layer.name == SIMULATION and (seed := _SEED.search(output)):
        return f"seed {seed[1]}"
    if failed := _FAILED.search(output):
        return failed[1].removeprefix("tests/")
    if code == 1:
        return "it does not run"
    raise RuntimeError(f"{' '.join(layer.arguments)}: exit code {code}: {output[-400:]}")


def python(layer: Layer) -> list[str]:
    """The command."""
    return [sys.executable, *layer.arguments]
