"""`python -m tests.defects.mutants [--only WORD] [--count 40] [--seed N] [--workers 2]`: changes that a tool makes.

A second source of defects beside the planted ones: cosmic-ray's operators turn comparisons, numbers, conditions and
loops of the modules in `MODULES` around, one at a time. `--count` of them are drawn; each goes through the unit tests
and scripts of its room. Who survives is printed with its change; the share is that of the draw. What changes nothing
but annotations, docstrings, whether a dataclass has slots and takes its values by name, or whether `zip` checks that
what it joins is equally long, is not counted.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.defects.catalogue import ROOT
from tests.defects.copies import Copy, each_in_a_copy

MODULES: Final = (
    *("controller/core", "controller/rules", "broker_sim/isr.py", "broker_sim/replicas", "broker_sim/groups"),
    "broker_sim/log",
    "controller/rules/configs",
)
#: Comparisons that are taken for each other; identity for equality would change nothing of most values here.
_COMPARISONS: Final = (
    *(f"{one}_{other}" for one, other in itertools.permutations(("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"), 2)),
    "Is_IsNot",
    "IsNot_Is",
)
#: Kinds of changes that are looked at. Others make text that does not run, or what nobody would write.
KINDS: Final = (
    *(f"ReplaceComparisonOperator_{each}" for each in _COMPARISONS),
    *("ReplaceTrue", "ReplaceFalse", "ReplaceAnd", "ReplaceOr", "AddNot", "NumberReplacer", "ZeroIteration"),
    *("ReplaceBreak", "ReplaceContinue", "ReplaceUnaryOperator"),
    *("ReplaceBinaryOperator_Add", "ReplaceBinaryOperator_Sub"),
)
LAYERS: Final = ("unit", "script")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the operator and the number of the place that it changes in the file."""

    file: str
    operator: str
    occurrence: int
    breaks: str = ""

    @property
    def name(self) -> str:
        """What was changed, in a word."""
        return f"{self.operator.rpartition('/')[2]} {self.occurrence}"

    def planted(self, text: str) -> str:
        """The text of the module with the change in it; unchanged where there is no such place."""
        changed = mutate_code(text.encode(), get_operator(self.operator)(), self.occurrence)
        return text if changed is None else changed if isinstance(changed, str) else changed.decode()

    def difference(self, text: str) -> str:
        """The lines that change, as a diff without its head."""
        lines = difflib.unified_diff(text.splitlines(), self.planted(text).splitlines(), n=0, lineterm="")
        return "\n".join(f"    {line}" for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def places(file: str) -> Iterator[Mutant]:
    """Each place of a module with each change that could be made there; some mean nothing."""
    tree = parso.parse((ROOT / file).read_text(encoding="utf-8"))
    nodes = list(ast_nodes(tree))
    for name in sorted(operator_names()):
        if name.rpartition("/")[2].startswith(KINDS) and not get_operator(name).arguments():
            operator = get_operator(name)()
            for occurrence in range(sum(1 for node in nodes for _ in operator.mutation_positions(node))):
                yield Mutant(file, name, occurrence)


def changes(mutant: Mutant) -> bool:
    """Whether the module, changed, still parses and does something else."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    return _meaning(mutant.planted(text)) not in (_meaning(text), "")


class _Bare(ast.NodeTransformer):
    """Without annotations, docstrings, and what only the checker of types would miss of dataclasses; and without the
    check of `zip`, which fails where there is a defect already."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for call in node.decorator_list:
            if isinstance(call, ast.Call):
                call.keywords = [each for each in call.keywords if each.arg not in ("slots", "kw_only")]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = [each for each in node.keywords if each.arg != "strict"]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)


def _meaning(text: str) -> str:
    """Equal for texts that run alike as far as annotations go; empty for what does not parse."""
    try:
        return ast.dump(_Bare().visit(ast.parse(text)))
    except SyntaxError:
        return ""


def drawn(only: str, count: int, seed: int) -> tuple[list[Mutant], int]:
    """So many mutants of the modules whose path contains `only`, and how many places there are to draw from."""
    files = sorted(
        path.relative_to(ROOT).as_posix()
        for module in MODULES
        for path in ([ROOT / module] if module.endswith(".py") else (ROOT / module).glob("*.py"))
    )
    every = [mutant for file in files if only in file for mutant in places(file)]
    random.Random(seed).shuffle(every)
    return list(itertools.islice(filter(changes, every), count)), len(every)


def main() -> int:
    """Plants, prints who survives. 1 where more than 5 % do."""
    parser = argparse.ArgumentParser(prog="python -m tests.defects.mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="modules whose path contains it")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    todo, every = drawn(asked.only, asked.count, asked.seed)
    survivors = []
    print(f"{len(todo)} of {every} places, drawn with seed {asked.seed}", flush=True)

    def plant(copy: Copy, mutant: Mutant) -> str:
        found = copy.noticed(mutant, range(1), LAYERS, every_layer=False)
        return next((who for who in found.values() if who), "")

    for mutant, who in each_in_a_copy(todo, asked.workers, plant):
        print(f"{mutant.file}: {mutant.name}: {who or 'SURVIVES'}", flush=True)
        if not who:
            survivors.append(mutant)
            print(mutant.difference((ROOT / mutant.file).read_text(encoding="utf-8")), flush=True)
    share = 100 * len(survivors) / max(1, len(todo))
    print(f"{len(survivors)} of {len(todo)} survive: {share:.1f} %")
    return 1 if share > 5 else 0


if __name__ == "__main__":
    raise SystemExit(main())
