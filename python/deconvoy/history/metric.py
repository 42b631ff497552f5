"""From a run to numbers, and from a round of runs to the metric."""

from __future__ import annotations

import ast
import json
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deconvoy.errors import UserError
from deconvoy.history.values import check_known, pattern_of

# What the kernel accounts to a run, by the name that a project file has for it.
ACCOUNTED = {
    "elapsed": "elapsed_s",
    "user": "user_s",
    "system": "system_s",
    "voluntary_switches": "voluntary_switches",
    "involuntary_switches": "involuntary_switches",
    "minor_faults": "minor_faults",
    "major_faults": "major_faults",
    "peak_memory": "peak_memory_bytes",
}

# What needs a tracer beside the run, and what the preloaded library counts.
TRACED = ("system_calls", "futex")
PRELOADED = ("locks", "contended")

KINDS = (*ACCOUNTED, *TRACED, *PRELOADED)

# What does not depend on what else the machine does.
COUNTS = ("locks", "minor_faults", "major_faults")

# So much of what a run printed is told when nothing in it matches.
SHOWN = 200


class NoNumber(Exception):
    """What a run printed has not the number; the text says so."""


@dataclass(frozen=True)
class Reader:
    """How one number of a run is read: by a pattern or a JSON key from what it printed, or from
    what the kernel, a tracer or the preloaded library counted. `told`: as in the project file."""

    kind: str
    told: str
    pattern: re.Pattern[str] | None = None

    def read(self, printed: str, counted: Mapping[str, float]) -> float:
        """Raises NoNumber."""
        if self.pattern is not None:
            found = self.pattern.search(printed)
            return number(found[1] if found else None, f"the pattern {self.told!r}", printed)
        if self.kind == "json":
            return number(in_json(printed, self.told), f"the key {self.told!r}", printed)
        return counted[ACCOUNTED.get(self.kind, self.kind)]


def number(found: Any, what: str, printed: str) -> float:
    """Raises NoNumber."""
    if found is None:
        shown = " / ".join(printed.split("\n")[-SHOWN:]).strip(" /")[-SHOWN:] or "nothing"
        raise NoNumber(f"{what} matches nothing in what the benchmark printed: {shown}")
    try:
        value = float(found)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise NoNumber(f"{what} gives {str(found)[:SHOWN]!r}, which is no number")
    return value


def in_json(printed: str, key: str) -> Any:
    """What is at `a.b.0` in the last line that is JSON, or in all that was printed."""
    for told in (*reversed(printed.strip().splitlines()), printed):
        try:
            found = json.loads(told)
        except ValueError:
            continue
        if not isinstance(found, dict | list):
            continue
        for part in key.split("."):
            try:
                found = found[int(part)] if isinstance(found, list) else found[part]
            except (KeyError, IndexError, TypeError, ValueError):
                return None
        return found
    return None


def reader_from(name: str, told: Any) -> Reader:
    """A reader from a project file. Raises UserError."""
    where = f"read.{name}"
    if not name.isidentifier():
        raise UserError(f"{where}: a name is made of letters, digits and _")
    if isinstance(told, str):
        check_known([told], KINDS, "")
        return Reader(told, told)
    if not isinstance(told, dict) or len(told) != 1:
        raise UserError(f"{where} is {{ pattern = … }}, {{ json = … }}, or one of: {KINDS}")
    check_known(told, ("pattern", "json"), f"{where}.")
    ((kind, text),) = told.items()
    if not isinstance(text, str) or not text:
        raise UserError(f"{where}.{kind} is a text, not {text!r}")
    if kind == "json":
        return Reader("json", text)
    return Reader("pattern", text, pattern_of(text, f"{where}.pattern"))


OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


class Expression:
    """The metric: numbers, `time[2] / time[6]`, `+ - * /` and parentheses; nothing else."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            raise UserError(f"metric.value is no expression: {text!r}") from None

    def check(self, names: Collection[str], threads: Sequence[int]) -> None:
        """Raises UserError when it asks for what is not read."""
        self._uses: list[tuple[str, int]] = []
        self._walk(self._tree, names, threads)
        if not self._uses:
            raise UserError(f"metric.value has nothing that is read: {self.text!r}")

    @property
    def uses(self) -> list[tuple[str, int]]:
        """What it is made of: names and numbers of threads."""
        return self._uses

    def _walk(self, node: ast.AST, names: Collection[str], threads: Sequence[int]) -> None:
        match node:
            case ast.BinOp() | ast.UnaryOp() if type(node.op) in OPERATORS:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._walk(child, names, threads)
            case ast.Constant(value=int() | float()):
                pass
            case ast.Name(id=name):
                self._check_name(name, names)
                if len(threads) > 1:
                    raise UserError(
                        f"metric.value: {name} with how many threads? {name}[{threads[0]}], "
                        f"{name}[{threads[-1]}]"
                    )
                self._uses.append((name, threads[0]))
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(count))):
                self._check_name(name, names)
                if count not in threads:
                    there = ", ".join(map(str, threads))
                    raise UserError(
                        f"metric.value: {name}[{count}]: benchmark.threads has no {count}: {there}"
                    )
                self._uses.append((name, count))
            case _:
                raise UserError(
                    f"metric.value: cannot work out {ast.unparse(node)!r}: it may have numbers, "
                    f"names from [read] and + - * / ( )"
                )

    def _check_name(self, name: str, names: Collection[str]) -> None:
        if name not in names:
            there = ", ".join(names)
            raise UserError(f"metric.value: [read] has no {name}: there are {there}")

    def value(self, values: Mapping[int, Mapping[str, float]]) -> float:
        """Of a round: what was read, by number of threads. NaN for a division by 0."""
        only = next(iter(values)) if len(values) == 1 else None

        def of(node: ast.AST) -> float:
            match node:
                case ast.BinOp(left=left, right=right, op=how):
                    return OPERATORS[type(how)](of(left), of(right))
                case ast.UnaryOp(operand=operand, op=how):
                    return OPERATORS[type(how)](of(operand))
                case ast.Constant(value=int() | float() as value):
                    return float(value)
                case ast.Name(id=name) if only is not None:
                    return float(values[only][name])
                case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(count))):
                    return float(values[count][name])
                case _:
                    raise AssertionError(ast.dump(node))

        try:
            return of(self._tree)
        except ZeroDivisionError:
            return math.nan
