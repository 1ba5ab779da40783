"""What holds for the whole tree: the top level, rooms, purity, names in prose, sizes, words that do not belong here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.names import documents, is_near, resolves, unresolved
from tests.tidy.purity import BUT_FOR, calls_of_the_world, impurities, pure_modules
from tests.tidy.rooms import MAY_IMPORT, ONLY_IN, arrows_of_modules, arrows_of_rooms, circles, too_far
from tests.tidy.source import (
    MODULES,
    ROOT,
    TEST_MODULES,
    TOP_LEVEL,
    facts_in,
    facts_of,
    imports,
    lines_of,
    private_reaches,
    text_of,
    tracked,
    tree_of,
    under,
)
from tests.tidy.state import STATE, VIEW, changes_of_state, is_state, verbs
from tests.tidy.tasks import NOTICED, STARTERS
from tests.tidy.unused import ALLOWED, unused

LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 400, 50
#: module, or module.function -> its lines, where they are too many still: none may grow, none may be added.
TOO_LONG: dict[str, int] = {}
#: Private attributes of others that tests look at, in all.
REACHES_MAX = 20
#: Outside these, time passes on the event loop and chance comes from a generator that is passed in.
MAY_CALL_THE_WORLD = ("controller.world.real", "controller.local", "controller.demo")

WORDS = {
    "an absolute path of one machine": re.compile(r"(?<![\w.])/(?:work|home|root|Users)/\w"),
    "a package registry": re.compile(r"\b(?:files\.pythonhosted|pypi|registry\.npmjs)\.(?:org|com)\b|\bindex-url\s*="),
    "how it was written": re.compile(
        r"\b(?:chatgpt|claude|copilot|llm|anthropic|openai|helper [1-9])\b", re.IGNORECASE
    ),
}


#: Participles say what happened to a thing, not what it is: a name says what it is.
NO_NOUNS = {"told", "said", "known", "few", "held", "wanted"}


def test_names_are_nouns_and_verbs() -> None:
    assert {module: found for module, path in MODULES.items() if (found := facts_of(path).made & NO_NOUNS)} == {}


def test_each_way_to_make_a_name_is_seen() -> None:
    tree = ast.parse("def _told(said, *, known=1): few, self.held = wanted = 1, 2")
    assert facts_in(tree).made == NO_NOUNS


def test_the_top_level_is_closed() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= TOP_LEVEL


def test_a_module_imports_only_what_its_room_allows() -> None:
    assert {module: found for module in MODULES if (found := too_far(module))} == {}


def test_every_row_of_a_room_names_one() -> None:
    assert [room for room in MAY_IMPORT if not any(under(module, room) for module in MODULES)] == []


def test_no_modules_go_in_a_circle() -> None:
    pending = {"controller.world.simulated.zk_session", "controller.world.simulated.zookeeper"}
    assert [circle for circle in circles(arrows_of_modules()) if circle != pending] == []


def test_no_rooms_go_in_a_circle() -> None:
    assert circles(arrows_of_rooms()) == []


def test_circles_are_found() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}) == [{"b", "c"}]
    assert circles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_a_folder_of_modules_is_a_package() -> None:
    assert [
        folder for folder in {path.parent for path in MODULES.values()} if not (folder / "__init__.py").is_file()
    ] == []


def test_a_library_is_imported_only_by_its_adapter() -> None:
    found = [(module, name) for module, path in MODULES.items() for name in imports(path)]
    elsewhere = [
        (m, name) for m, name in found if not under(m, *ONLY_IN.get(name.split(".")[0], ("controller", "broker_sim")))
    ]
    assert elsewhere == []


def test_what_says_that_it_is_pure_is() -> None:
    assert len(pure_modules()) > 100
    assert {module: found for module in pure_modules() if (found := impurities(module))} == {}


def test_exceptions_from_purity_are_needed() -> None:
    for module, excepted in BUT_FOR.items():
        assert set(excepted) <= set(imports(MODULES[module])), module


def test_time_chance_and_sockets_are_passed_in() -> None:
    inner = [module for module in MODULES if not under(module, *MAY_CALL_THE_WORLD)]
    assert {module: found for module in inner if (found := calls_of_the_world(module))} == {}


@pytest.mark.parametrize("module", sorted(m for m in MODULES if under(m, "controller.core", "controller.node")))
def test_the_state_of_the_controller_changes_through_its_verbs_alone(module: str) -> None:
    if module not in (STATE, VIEW):
        assert not list(changes_of_state(tree_of(MODULES[module])))


@pytest.mark.parametrize("module", sorted(m for m in MODULES if under(m, "controller.node")))
def test_nothing_outside_the_controllers_task_changes_its_state(module: str) -> None:
    """Only the process, which makes the state and hands it to that task, may even know the class that changes."""
    called = {
        node.func.attr
        for node in ast.walk(tree_of(MODULES[module]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_state(node.func.value)
    }
    assert not called & verbs()
    assert STATE not in imports(MODULES[module]) or module == "controller.node.process"


def test_both_programs_start_tasks_under_the_supervisor() -> None:
    """Else one could end unnoticed. Those that are awaited are named, and there."""
    rooms = (
        "controller.core",
        "controller.node",
        "controller.world",
        "controller.rules",
        "controller.wire",
        "broker_sim",
    )
    programs = [m for m in MODULES if under(m, *rooms) and not under(m, "controller.world.simulated")]
    assert {m for m in programs if {name for _, name in facts_of(MODULES[m]).calls} & STARTERS} == set(NOTICED)
    calls = facts_in(ast.parse("async def f():\n    asyncio.create_task(g())\n    ensure_future(h())")).calls
    assert {name for _, name in calls} & STARTERS == {"create_task", "ensure_future"}


def test_a_change_of_the_state_is_found() -> None:
    for change in (
        "state.topics = set()",
        "self._state.epoch += 1",
        "node.state.topics.add('t')",
        "state.live_brokers[1] = broker",
        "del state.live_brokers[1]",
        "state.epoch, version = 1, 2",
        "print(state._topics)",
    ):
        assert list(changes_of_state(ast.parse(change))), change
    assert not list(
        changes_of_state(ast.parse("state.lead(tp, new); found = state.topics | {'t'}; self.state = state"))
    )


def test_a_module_says_what_it_is_for() -> None:
    assert [module for module, path in MODULES.items() if not facts_of(path).docstring] == []


def test_an_init_holds_a_docstring_only() -> None:
    """Importing a submodule runs it."""
    inits = {module: path for module, path in MODULES.items() if path.name == "__init__.py"}
    assert [module for module, path in inits.items() if facts_of(path).statements != 1] == []


def test_what_prose_names_is_there() -> None:
    files = {path.relative_to(ROOT).as_posix(): unresolved(path) for path in documents()}
    assert {file: found for file, found in files.items() if found} == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("core.step", True),
        ("controller.core.step.handle", True),
        ("step.no_such_function", False),
        ("ClusterState.no_such_verb", False),
        ("no_such_word", False),
        ("ReplicaManager.becomeLeaderOrFollower", True),  # Kafka's
        ("ReplicaManager.becomeNothing", False),
        ("NoSuchManager.becomeLeaderOrFollower", False),
        ("UnifiedLog", True),  # Kafka's, too
        ("NoSuchManager", False),
        ("replica.lag.time.max.ms", True),
        ("gone_module.IsrWriter", False),
    ],
)
def test_names_are_told_from_what_is_nowhere(name: str, expected: bool) -> None:
    assert resolves(name) is expected


@pytest.mark.parametrize(
    ("name", "expected"), [("handle", True), ("leader", True), ("wire", True), ("nosuchword", False), ("serve", False)]
)
def test_a_plain_word_is_one_of_the_code_near_by(name: str, expected: bool) -> None:
    assert is_near(name, MODULES["controller.core.step"]) is expected


def test_tests_look_at_what_is_public() -> None:
    """Private attributes of others: few, and not more."""
    reaches = [reach for path in TEST_MODULES.values() for reach in private_reaches(path)]
    assert len(reaches) <= REACHES_MAX, reaches


def test_prose_is_in_docstrings_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        """\"\"\"See `no_such_file.py`.\"\"\"

def f(text: str = "`no_such_string`") -> None:
    \"\"\"See `step.no_such_function`. Raises: NoSuchError, ValueError.\"\"\"
    return None  # see `no_such_word()`


class C:

    #: `ClusterState.no_such_verb`
    x = \"\"\"`no_such_text`\"\"\"
""",
        encoding="utf-8",
    )
    assert sorted(unresolved(file)) == [
        "10: `ClusterState.no_such_verb`",
        "1: no_such_file.py",
        "4: NoSuchError",
        "4: `step.no_such_function`",
        "5: `no_such_word()`",
    ]


def test_nothing_is_defined_that_no_program_uses() -> None:
    assert unused() == {}


def test_exceptions_from_use_are_of_things_that_are_there() -> None:
    defined = "\n".join(text_of(path) for path in MODULES.values())
    gone = [name for name in ALLOWED if not re.search(rf"\b{name.rpartition('.')[2]}\b", defined)]
    assert gone == []


def test_a_file_can_be_read_in_one_go() -> None:
    lengths = {module: lines_of(path) for module, path in MODULES.items()}
    assert {m: lines for m, lines in lengths.items() if lines > TOO_LONG.get(m, LINES_OF_A_FILE)} == {}


def test_a_function_can_be_read_in_one_look() -> None:
    lengths = {f"{module}.{name}": n for module, path in MODULES.items() for name, n in facts_of(path).functions}
    assert {name: n for name, n in lengths.items() if n > TOO_LONG.get(name, LINES_OF_A_FUNCTION)} == {}


@pytest.mark.parametrize("what", WORDS)
def test_no_file_tells(what: str) -> None:
    found = []
    for path in tracked():
        if path.name in ("LICENSE", "requirements.lock", "image.lock", Path(__file__).name):
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if WORDS[what].search(line)]
    assert not found, f"{what}: {found}"


@pytest.mark.parametrize("name", ["requirements.lock", ".ci/image.lock"])
def test_a_lock_file_names_no_host(name: str) -> None:
    assert "://" not in (ROOT / name).read_text(encoding="utf-8")


def test_what_workers_begin_with_is_there(request: pytest.FixtureRequest) -> None:
    """A folder that moved would be begun last, and waited for."""
    workers = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    assert workers is not None
    assert [path for path in workers.LONGEST_FIRST if not (ROOT / path).exists()] == []
