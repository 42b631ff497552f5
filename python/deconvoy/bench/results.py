"""Result files: versioned JSON, whole at every moment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deconvoy.errors import UserError
from deconvoy.files import write_whole

# Raised with every change of the layout; `load` brings older files up to it.
VERSION = 3


@dataclass
class Run:
    """One execution. `values` are in the unit that ends their name; lists are single samples."""

    runtime: str
    scenario: str
    workers: int
    order: int
    values: dict[str, Any]
    foreign_cores: float
    quiet: bool
    switch_interval_s: float | None = None
    # How the work is spread, and of tasks how large they are.
    mode: str | None = None
    size: int | None = None


@dataclass
class Result:
    """All runs of one call, with the machine they ran on."""

    command: list[str]
    created_unix_s: float
    deconvoy: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    runtimes: dict[str, str]
    runs: list[Run] = field(default_factory=list)
    # Cells without a run: what a runtime lacks, and how a program has failed.
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    version: int = VERSION

    def save(self, path: Path) -> None:
        """Writes it down, whole; raises OSError when it cannot."""
        write_whole(path, json.dumps(asdict(self)))


def load(path: Path) -> Result:
    """Reads a result file of this or an older version.

    Raises UserError for a file that is none, is damaged, or was written by a newer deconvoy.
    """
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not a result of deconvoy bench, or damaged") from error
    is_result = isinstance(data, dict) and "runs" in data and isinstance(data.get("version"), int)
    if not is_result:
        raise UserError(f"{path}: not a result of deconvoy bench")
    if data["version"] > VERSION:
        raise UserError(
            f"{path}: written by a newer deconvoy (format {data['version']}; "
            f"this one reads up to {VERSION}): update deconvoy"
        )
    version, data["version"] = data["version"], VERSION
    try:
        for run in data["runs"] if version < 3 else []:
            bring_up(run)
        data["runs"] = [Run(**run) for run in data["runs"]]
        return Result(**data)
    except (AttributeError, TypeError) as error:
        raise UserError(f"{path}: damaged: {error}") from error


def bring_up(run: dict[str, Any]) -> None:
    """Before version 3 only tasks had a mode."""
    if run.get("mode") is None and run.get("scenario") in ("countdown", "messaging"):
        is_one = run["scenario"] == "countdown" and run.get("workers") == 1
        run["mode"] = "sequential" if is_one else "thread"
