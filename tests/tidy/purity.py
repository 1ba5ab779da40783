"""What calls itself pure is: no clock, no chance, no I/O, no task."""

from __future__ import annotations

import re

from tests.tidy.source import MODULES, facts_of, under

#: What decides knows none of these, nor a port behind which one stands.
IMPURE = {
    *("asyncio", "concurrent", "fcntl", "http", "multiprocessing", "os", "random", "secrets", "select", "selectors"),
    *("shutil", "signal", "socket", "ssl", "structlog", "subprocess", "sys", "tempfile", "threading", "time", "urllib"),
    *("confluent_kafka", "kazoo", "prometheus_client", "pyspark", "controller.world", "broker_sim.host"),
}
#: Packages that decide, whatever their modules say of themselves.
ALWAYS = (
    "controller.core",
    "broker_sim.isr",
    "broker_sim.isr_columns",
    "controller.admin.checks.statements",
    "controller.demo.compare",
)
#: module -> what it may nevertheless import, and why.
BUT_FOR: dict[str, dict[str, str]] = {
    "controller.world.real.armed_watches": {"controller.world.real.jute": "bytes in, bytes out; pure itself"},
    "controller.world.real.units": {"asyncio": "settles the future of a unit, as its docstring says"},
}
#: Functions of the clock, and of the process's own generator.
_FORBIDDEN_CALLS = {("time", "time"), ("time", "sleep"), ("socket", "socket"), ("socket", "create_connection")}
_FORBIDDEN_CALLS |= {("random", name) for name in ("random", "randint", "choice", "shuffle", "uniform", "sample")}
_FILE_CALLS = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}


def pure_modules() -> list[str]:
    """The modules that say so in their docstring as a word of its own sentence, and those that must be."""
    return [name for name, path in MODULES.items() if under(name, *ALWAYS) or _says_pure(facts_of(path).docstring)]


def _says_pure(docstring: str) -> bool:
    return re.search(r"(^|[.:;] )Pure\b", " ".join(docstring.split())) is not None


def impurities(module: str) -> set[str]:
    """What a pure module imports or calls that is not; a generator of chance with a seed is.

    A class that the docstring excepts ("Pure but for `EpochFile`") may know files.
    """
    facts = facts_of(MODULES[module])
    allowed = BUT_FOR.get(module, {})
    found = {name for name in facts.imports if under(name, *IMPURE) and name not in allowed}
    if facts.chance <= {"Random"} and facts.is_seeded:
        found.discard("random")
    if "ure but for `" in " ".join(facts.docstring.split()):
        return found
    return found | {f"{name}()" for _, name in facts.calls if name in _FILE_CALLS}


def calls_of_the_world(module: str) -> set[tuple[str, str]]:
    """Calls that take time, chance or a socket from the process instead of from what was passed in."""
    return facts_of(MODULES[module]).calls & _FORBIDDEN_CALLS
