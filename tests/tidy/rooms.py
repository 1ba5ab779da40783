"""The rooms of both programs: what each may import, and how circles between them are found.

A room is a package without packages in it. A module beside packages (`controller/cli.py`, `broker_sim/isr.py`) is a
room of its own: what stands above and what stands below those packages lie there together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.tidy.source import MODULES, imports, under

_BELOW = ("controller.wire", "controller.rules", "controller.world")
_REPLAY = "broker_sim.replay"

#: room -> rooms of our own that it may import besides itself; the longest prefix that fits counts. Arrows go down.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # what crosses a border, and Kafka's arithmetic: both programs know them, and they know nobody
    "controller.wire": (),
    "controller.rules": ("controller.wire",),
    # the ports, and what stands behind them: only who puts a program together knows the latter
    "controller.world": ("controller.wire",),
    "controller.world.real": ("controller.world", "controller.wire"),
    "controller.world.simulated": ("controller.world", "controller.wire"),
    # the controller: deciding, and the shell around it
    "controller.core": ("controller.wire", "controller.rules"),
    "controller.node": ("controller.core", *_BELOW),
    # clients of the protocol
    "controller.admin": _BELOW,
    # whole clusters
    "controller.local": ("controller.admin", *_BELOW),
    "controller.demo": ("controller.local", "controller.admin", *_BELOW),
    "controller.sim.oracles": (
        "controller.sim",
        "controller.node",
        "controller.core",
        "controller.admin",
        "broker_sim",
        *_BELOW,
    ),
    "controller.sim.load": ("controller.sim", *_BELOW),
    "controller.sim": ("controller.node", "controller.admin", "broker_sim", *_BELOW),
    "controller.rehearse": (
        "controller.node",
        "controller.admin",
        "broker_sim.config",
        "broker_sim.fluid",
        "broker_sim.metadata_decoding",
        "broker_sim.registration",
        "broker_sim.replay.errors",
        "broker_sim.replay.many",
        "broker_sim.replay.session",
        *_BELOW,
    ),
    # a page that shows a cluster or a rehearsal
    "controller.ui": ("controller.local", "controller.rehearse.files", "controller.admin", *_BELOW),
    # a cluster in this process: another composition root
    "controller.embedded": (
        "broker_sim",
        "controller.node",
        "controller.local",
        "controller.admin",
        *_BELOW,
    ),
    # the composition root: what starts programs may know them all
    "controller": ("controller", "broker_sim"),
    # the broker: rules and nouns, logs, replicas, groups, what is answered, and the modules that put a broker together
    "broker_sim.isr": ("controller.wire",),
    "broker_sim.isr_columns": ("broker_sim.isr", "controller.wire"),
    "broker_sim.config": ("controller.wire", "controller.rules"),
    "broker_sim.metadata_cache": ("controller.wire",),
    "broker_sim.trace": ("controller.wire",),
    "broker_sim.zk_client": ("controller.wire", "controller.world"),
    "broker_sim.topic_meters": (),
    "broker_sim.log": ("broker_sim.config", "controller.wire"),
    "broker_sim.faults": ("controller.wire", "controller.world"),
    "broker_sim.replicas": (
        "broker_sim.log",
        "broker_sim.isr",
        "broker_sim.config",
        "broker_sim.topic_meters",
        "broker_sim.trace",
        "broker_sim.zk_client",
        *_BELOW,
    ),
    "broker_sim.groups": (
        "broker_sim.replicas.types",
        "broker_sim.log",
        "broker_sim.config",
        "broker_sim.metadata_cache",
        *_BELOW,
    ),
    "broker_sim.apis": ("broker_sim", *_BELOW),
    "broker_sim.metrics": ("broker_sim", *_BELOW),
    "broker_sim.fluid": ("broker_sim", *_BELOW),
    "broker_sim": ("broker_sim", *_BELOW),
    # the replay: rules over rows, log files, what Spark does with both
    "broker_sim.replay.rules": (
        "broker_sim.isr",
        "broker_sim.isr_columns",
        f"{_REPLAY}.rows",
        f"{_REPLAY}.compare",
        "controller.wire",
    ),
    "broker_sim.replay.logs": (
        f"{_REPLAY}.below",
        f"{_REPLAY}.errors",
        f"{_REPLAY}.grouped",
        f"{_REPLAY}.schema",
        f"{_REPLAY}.session",
        f"{_REPLAY}.tables",
        f"{_REPLAY}.worker_files",
        "controller.wire",
    ),
    "broker_sim.replay.metadata_log": (
        f"{_REPLAY}.below",
        f"{_REPLAY}.distinct",
        f"{_REPLAY}.errors",
        f"{_REPLAY}.grouped",
        f"{_REPLAY}.schema",
        f"{_REPLAY}.tables",
        "controller.wire",
    ),
    "broker_sim.replay.ingest": (
        f"{_REPLAY}.below",
        f"{_REPLAY}.logs",
        f"{_REPLAY}.grouped",
        f"{_REPLAY}.metadata_log",
        f"{_REPLAY}.errors",
        f"{_REPLAY}.schema",
        f"{_REPLAY}.session",
        f"{_REPLAY}.sql.run",
        f"{_REPLAY}.tables",
        f"{_REPLAY}.worker_files",
        "controller.wire",
    ),
    "broker_sim.replay.sql": (
        f"{_REPLAY}.facts",
        f"{_REPLAY}.logs.waiting_rows",
        f"{_REPLAY}.rows",
        f"{_REPLAY}.schema",
        f"{_REPLAY}.tables",
        "controller.wire",
    ),
    "broker_sim.replay.what_if": (
        f"{_REPLAY}.what_if_limits",
        f"{_REPLAY}.distinct",
        f"{_REPLAY}.rules",
        f"{_REPLAY}.errors",
        f"{_REPLAY}.grouped",
        f"{_REPLAY}.history",
        f"{_REPLAY}.rows",
        f"{_REPLAY}.schema",
        "broker_sim.isr",
        "broker_sim.isr_columns",
        "controller.wire",
    ),
    "broker_sim.replay.report": (
        f"{_REPLAY}.diagnosis_limits",
        f"{_REPLAY}.finding",
        f"{_REPLAY}.tables",
        f"{_REPLAY}.what_if_limits",
    ),
    "broker_sim.replay.generator": (f"{_REPLAY}.draft", f"{_REPLAY}.errors", "controller.wire", "controller.rules"),
    "broker_sim.replay": ("broker_sim.isr", *_BELOW),
    # the same door as `kwob replay`
    "broker_sim.replay.__main__": ("controller.cli",),
}
#: room -> what it may not import although the row above allows it.
MAY_NOT_IMPORT: dict[str, tuple[str, ...]] = {
    "controller.world": ("controller.world.real", "controller.world.simulated"),
    "controller.world.real": ("controller.world.simulated",),
    "controller.world.simulated": ("controller.world.real",),
    "controller.node": ("controller.world.simulated",),
    "controller.core": ("controller.wire.codec",),
    "controller.embedded": ("broker_sim.replay",),
    "broker_sim.replay": (
        "controller.world.real.net",
        "controller.world.real.zookeeper",
        "controller.world.simulated",
    ),
    "broker_sim.metrics": ("broker_sim.replay", "broker_sim.broker", "broker_sim.host", "broker_sim.run"),
    "broker_sim.apis": ("broker_sim.replay", "broker_sim.broker", "broker_sim.host", "broker_sim.run"),
    "broker_sim.fluid": ("broker_sim.replay", "broker_sim.broker", "broker_sim.host", "controller.world.simulated"),
    "broker_sim": ("broker_sim.replay", "controller.world.simulated"),
}
#: library -> the only modules that may import it.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "kazoo": ("controller.world.real.zookeeper", "controller.world.real.kazoo_connection"),
    "kio": (
        "controller.wire.codec.kio_schemas",
        "controller.wire.codec.later_schemas",
        "controller.wire.codec.schema",
    ),
    "pyspark": ("broker_sim.replay", "controller.sim.spark", "controller.rehearse.sweep_job"),
    "confluent_kafka": ("controller.demo", "controller.local.load"),
    "starlette": ("controller.ui.web", "controller.ui.command"),
    "uvicorn": ("controller.ui.serving", "controller.ui.command"),
    "testcontainers": ("controller.embedded.container",),
    "prometheus_client": ("controller.node.metrics", "controller.world.metrics_page", "broker_sim.metrics"),
}


def row(table: Mapping[str, tuple[str, ...]], module: str) -> tuple[str, ...]:
    """What the table holds for the room that names the module most closely; nothing where no row fits."""
    fitting = [prefix for prefix in table if under(module, prefix)]
    return table[max(fitting, key=len)] if fitting else ()


def too_far(module: str) -> set[str]:
    """What a module of ours imports past its row."""
    home = max((room for room in MAY_IMPORT if under(module, room)), key=len)
    allowed, refused = row(MAY_IMPORT, module), row(MAY_NOT_IMPORT, module)
    ours = {name for name in imports(MODULES[module]) if name in MODULES}
    return {name for name in ours if not under(name, home, *allowed) or under(name, *refused)}


def room_of(module: str) -> str:
    """The package of a module; a module beside packages is a room itself."""
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    package = module if module in packages else module.rpartition(".")[0]
    beside = any(name.rpartition(".")[0] == package for name in packages)
    return module if beside else package


def arrows_of_modules() -> dict[str, set[str]]:
    """Who imports whom, module by module; packages as such do nothing and are left out."""
    return {name: {other for other in imports(path) if other in MODULES} - {name} for name, path in MODULES.items()}


def arrows_of_rooms() -> dict[str, set[str]]:
    """Who imports whom, room by room."""
    rooms = {name: room_of(name) for name in MODULES}
    arrows: dict[str, set[str]] = {room: set() for room in rooms.values()}
    for module, others in arrows_of_modules().items():
        arrows[rooms[module]] |= {rooms[other] for other in others} - {rooms[module]}
    return arrows


def circles(arrows: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """The groups in which each reaches each other along arrows."""
    reach = {name: _reached(arrows, name) for name in arrows}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in arrows}
    return [set(group) for group in sorted(groups, key=sorted) if len(group) > 1]


def _reached(arrows: Mapping[str, Iterable[str]], start: str) -> set[str]:
    seen, front = set[str](), list(arrows[start])
    while front:
        name = front.pop()
        if name not in seen:
            seen.add(name)
            front += arrows[name]
    return seen
