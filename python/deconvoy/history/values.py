"""Values of a project file, each checked: a mistake names the key and what it may be."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deconvoy.errors import UserError

SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
TIMES_S = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def check_known(found: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raises UserError at a key that nobody knows."""
    for key in found:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            there = f"did you mean {where}{close[0]}?" if close else f"known: {', '.join(known)}"
            raise UserError(f"nobody knows {where}{key}: {there}")


def text(table: Mapping[str, Any], key: str, where: str, default: Any = ...) -> Any:
    """A text of a table. Raises UserError when there is another thing, or it must be there."""
    found = table.get(key, default)
    if found is ...:
        raise UserError(f"{where}.{key} is missing")
    if found is not default and (not isinstance(found, str) or not found.strip()):
        raise UserError(f"{where}.{key} is a text, not {found!r}")
    return found


def yes_or_no(table: Mapping[str, Any], key: str, where: str, default: bool) -> bool:
    found = table.get(key, default)
    if not isinstance(found, bool):
        raise UserError(f"{where}.{key} is true or false, not {found!r}")
    return found


def texts(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    found = table.get(key, [])
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise UserError(f"{where}.{key} is a list of texts, not {found!r}")
    return tuple(found)


def inside(path: Any, where: str) -> Any:
    """A path in the files of a revision, if there is one. Raises UserError when it leads out."""
    if path is not None and (path.startswith("/") or ".." in Path(path).parts):
        raise UserError(
            f"{where} is a path in the repository, as seen from its top folder, not {path!r}"
        )
    return path


def pattern_of(told: str, where: str) -> re.Pattern[str]:
    """Raises UserError when it is no regular expression with a group."""
    try:
        pattern = re.compile(told, re.MULTILINE)
    except re.error as error:
        raise UserError(f"{where}: {error}: {told!r}") from None
    if pattern.groups < 1:
        raise UserError(f"{where} has no group: put what is read in parentheses: {told!r}")
    return pattern


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def share(told: Any) -> float:
    """`5%` or 0.05, as 0.05."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*(%?)\s*", str(told))
    try:
        value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise UserError(f"metric.least is the least change that matters: '5%', not {told!r}")
    return value


def time_of(told: Any, where: str) -> float:
    """`10min`, in seconds. Raises UserError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h)\s*", str(told))
    if found is None or float(found[1]) <= 0:
        raise UserError(f"{where} is a time: '30s', '10min', '2h', not {told!r}")
    return float(found[1]) * TIMES_S[found[2]]


def size_of(told: str) -> int:
    """`20G`, in bytes. Raises UserError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", told)
    if found is None:
        raise UserError(f"store.size is a size: '500M', '20G', not {told!r}")
    return int(float(found[1]) * SIZES[found[2]])
