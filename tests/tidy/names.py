"""What prose names must be there: files and `module.function`, in docstrings, comments and documents.

A name counts as ours unless it is another's: a setting of Kafka, a class of Kafka (`kafka_names.txt` has them), a
module of Python, or one of `ELSEWHERE`.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.source import MODULES, ROOT, TEST_MODULES, text_of, tracked, tree_of

EVERYWHERE = {**MODULES, **TEST_MODULES}
#: Names of others that look like ours -> whose.
ELSEWHERE = {
    "_run_once": "asyncio",
    "rd_kafka_msg_partitioner_consistent_random": "librdkafka",
    "NO_REPLICATION_FACTOR": "Kafka's CreateTopicsRequest",
    "jute.maxbuffer": "ZooKeeper",
    "zookeeper.jute": "ZooKeeper",
    "loop.time": "asyncio",
    "Path.read_bytes": "pathlib",
    "java.time.Duration": "Java",
    "org.apache.kafka.server.util.Json": "Kafka",
    "org.apache.zookeeper.ZooDefs": "ZooKeeper",
    "noun.past_verb": "a pattern",
    "Class.member": "a pattern",
    "Class.name": "a pattern",
    "Task.cancel": "asyncio",
    "ProcessPoolExecutor": "concurrent.futures",
    "AsyncResult": "kazoo's IAsyncResult",
    "Double.toString": "Java",
    "Double.valueOf": "Java",
    "HashMap.hash": "Java",
    "InetAddress.getByName": "Java",
    "Integer.parseInt": "Java",
    "Long.MAX_VALUE": "Java",
    "Long.parseLong": "Java",
    "String.getBytes": "Java",
    "String.hashCode": "Java",
    "String.split": "Java",
    "Hashing.improve": "Scala",
    "ReaderBasedJsonParser": "Jackson",
    "ClientCnxn.SET_WATCHES_MAX_LENGTH": "ZooKeeper",
    "ConnectStringParser": "ZooKeeper",
    "DataTree": "ZooKeeper",
    "KeeperException.Code": "ZooKeeper",
    "MultiOperationRecord": "ZooKeeper",
    "NIOServerCnxn.readLength": "ZooKeeper",
    "PrepRequestProcessor": "ZooKeeper",
    "ZooDefs.Ids.OPEN_ACL_UNSAFE": "ZooKeeper",
    "ZooDefs.OpCode": "ZooKeeper",
    "cu": "the specification",
    "ft": "the specification",
    "ll": "the specification",
    "resize": "Java's HashMap",
    "touch": "Kafka's FetchSessionCache",
    "inf": "a number",
    "nan": "a number",
    "true": "YAML and JSON",
    "grep": "a command",
    "consequence": "a key that a caller gives",
    "derived": "a table of SQL",
    "quarantine": "a folder of results",
    "ControllerRequestBatch": "Kafka's ControllerBrokerRequestBatch",
    "GroupMetadataManager.loadGroupsForPartition": "Kafka's GroupMetadataManager.loadGroupsAndOffsets",
    "ZkIsrManager": "Kafka 2.8; ZkAlterPartitionManager in 3.9",
}
#: Endings of files; `server.log` is no module named server.
_ENDINGS = {"log", "json", "jsonl", "gz", "properties", "parquet", "html", "md", "txt", "yaml", "toml", "scala", "java"}
_FILE = re.compile(r"(?<![\w/.*-])[\w/.-]*\w\.py\b(::\w+)?")
#: A docstring follows the line that ends with a colon, or begins the file.
_DOCSTRING = re.compile(r'''(?:\A|(?<=:\n)|(?<=:\n\n)) *r?"""(?:.|\n)*?"""''')
_COMMENT = re.compile(r"(?:^|(?<=  )|(?<=^ ))#.*$|^ +#.*$", re.MULTILINE)
#: Ticks may go over the end of a line.
_TICKED = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
#: What a docstring says that is raised, without ticks.
_RAISES = re.compile(r"Raises:? [^.]*")
_ERROR = re.compile(r"(?<![\w`.])[A-Z][a-z]+[A-Z]\w+")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file that machines do not run, each with its line: docstrings and comments, or a document."""
    text = text_of(path)
    if path.suffix != ".py":
        yield 1, re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL)
        return
    for found in (*_DOCSTRING.finditer(text), *_COMMENT.finditer(text)):
        yield text.count("\n", 0, found.start()) + 1, found[0]


def documents() -> list[Path]:
    """Every file whose prose is about the tree as it is now; what CHANGELOG.md tells of may be gone."""
    others = ("CHANGELOG.md", "defects.md", "test_tidy.py")  # what was there once, and what must not be there
    return [path for path in tracked() if path.suffix in (".py", ".md") and path.name not in others]


def unresolved(path: Path) -> list[str]:
    """The names in a file's prose that are nowhere, as `line: name`."""
    missing = []
    module = path if path in _paths() else None
    for line, text in prose(path):
        for found, resolves in _names_in(text, module):
            if not resolves:
                missing.append(f"{line + text[: found.start()].count(chr(10))}: {found[0]}")
    return missing


def _names_in(text: str, module: Path | None) -> Iterator[tuple[re.Match[str], bool]]:
    """What a text, of a module or of none, names, and whether that is there."""
    for raises in _RAISES.finditer(text):
        for found in _ERROR.finditer(text, *raises.span()):
            yield found, resolves(found[0])
    for found in _FILE.finditer(text):
        yield found, _is_file(found[0])
    for found in _TICKED.finditer(text):
        ticked = re.sub(r"\n\s*", "", found[1])
        name = re.sub(r"\(.*\)$", "", ticked)
        if _DOTTED.fullmatch(name) and not name.endswith(".py"):
            plain = name == ticked and not re.search(r"[._]|^[A-Z].*[a-z]", name)
            yield found, is_near(name, module) if plain else resolves(name)


@cache
def _paths() -> frozenset[Path]:
    return frozenset(MODULES.values())


@cache
def _near(path: Path) -> tuple[Path, ...]:
    """A module, the others of its folder, and those that it imports."""
    imported = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ImportFrom) and node.module]
    names = [name for node in imported for name in (node.module, *(f"{node.module}.{a.name}" for a in node.names))]
    return (path, *path.parent.glob("*.py"), *(MODULES[name] for name in dict.fromkeys(names) if name in MODULES))


@cache
def _parts() -> frozenset[str]:
    """What modules and folders are called, and what Python has."""
    return frozenset({part for module in MODULES for part in module.split(".")} | {*keyword.kwlist, *dir(builtins)})


def is_near(name: str, path: Path | None) -> bool:
    """Whether a plain word is one of the code of a module, of the others of its folder or of those that it imports, a
    module, a method of Kafka's (beside its class), Python's, or one of `ELSEWHERE`. Of other texts: always."""
    if path is None or name in ELSEWHERE or name in _parts() or re.search(r"[A-Z]", name):
        return True
    return any(name in _words_of(each) for each in _near(path))


@cache
def _words_of(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", _code_of(path)))


@cache
def _code_of(path: Path) -> str:
    return _COMMENT.sub("", _DOCSTRING.sub("", text_of(path)))


@cache
def _is_file(name: str) -> bool:
    file, _, test = name.partition("::")
    paths = [path for known, path in _python() if known.endswith("/" + file)]
    return any(not test or test in _members(path) for path in paths)


@cache
def resolves(name: str) -> bool:
    """Whether a name without arguments is there: a word of the code, a member of a module or class, or another's."""
    head, *tail = name.split(".")
    if name in ELSEWHERE or head in sys.stdlib_module_names or name in _quoted():
        return True
    if not tail:
        return name in _words() or name in _of_kafka() or keyword.iskeyword(name)
    return tail[-1] in _ENDINGS or _as_member(name) or _as_others(head, tail)


def _as_member(name: str) -> bool:
    """`module.thing`, `package.module.thing`, `Class.member`: the longest head that is a module wins."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        for path in _modules(".".join(parts[:cut])):
            if _reaches(path, parts[cut:]):
                return True
    return any(_reaches(node, parts[1:]) for node in _classes(parts[0]))


def _as_others(head: str, tail: list[str]) -> bool:
    """A class of Kafka's and its members; or a variable of ours and what it has."""
    if head[0].isupper():
        return _of_kafka().get(head, frozenset()) >= set(tail)
    return not _modules(head) and head in _words() and tail[-1] in _words()


@cache
def _of_kafka() -> dict[str, frozenset[str]]:
    lines = Path(__file__).with_name("kafka_names.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {name: frozenset(members) for name, *members in rows}


@cache
def _python() -> list[tuple[str, Path]]:
    return [("/" + path.relative_to(ROOT).as_posix(), path) for path in tracked() if path.suffix == ".py"]


@cache
def _modules(name: str) -> tuple[Path, ...]:
    """The modules that a dotted name may mean, by its last parts."""
    return tuple(path for module, path in EVERYWHERE.items() if ("." + module).endswith("." + name))


def _reaches(place: Path | ast.ClassDef, parts: list[str]) -> bool:
    if not parts:
        return True
    if len(parts) == 1:
        return parts[0] in _members(place)
    nodes = ast.walk(tree_of(place)) if isinstance(place, Path) else place.body
    inner = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == parts[0]]
    return any(_reaches(found, parts[1:]) for found in inner)


@cache
def _members(place: Path | ast.ClassDef) -> frozenset[str]:
    """What a module or class has: functions, classes, names, fields, and what methods set on `self`."""
    names: set[str] = set()
    for node in ast.walk(tree_of(place) if isinstance(place, Path) else place):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            names.add(node.attr)
    return frozenset(names)


@cache
def _classes(name: str) -> tuple[ast.ClassDef, ...]:
    """Our classes of that name, with their bases of ours."""
    found: list[ast.ClassDef] = []
    for path in _files_of_classes().get(name, ()):
        found += [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef) and node.name == name]
    bases = [ast.unparse(base).split(".")[-1].split("[")[0] for node in found for base in node.bases]
    return (*found, *(node for base in bases if base != name for node in _classes(base)))


@cache
def _files_of_classes() -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for path in EVERYWHERE.values():
        for name in re.findall(r"^ *class (\w+)", text_of(path), re.MULTILINE):
            files.setdefault(name, []).append(path)
    return files


@cache
def _tokens() -> tuple[frozenset[str], frozenset[str]]:
    """The words of all code, and what stands between blanks in it; comments and docstrings are not code."""
    words, quoted = set[str](), set[str]()
    for name, path in EVERYWHERE.items():
        if name == "tests.test_tidy":
            continue  # it names what must not be there
        words.update(_words_of(path))
        quoted.update(re.findall(r"[\w.-]+", _code_of(path)))
    for path in tracked():
        if path.parent.name in (".ci", "scripts") or path.name in ("Makefile", "docker-compose.yml"):
            words.update(re.findall(r"\w+", text_of(path)))
    return frozenset(words), frozenset(quoted)


def _words() -> frozenset[str]:
    return _tokens()[0]


def _quoted() -> frozenset[str]:
    return _tokens()[1]
