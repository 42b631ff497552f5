"""Results as they are kept: a file a series, a folder of them as the store."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from deconvoy.bench.results import SUFFIX, Result, load
from deconvoy.errors import UserError

# What tells two machines apart, of their descriptions.
IDENTITY = ("processor", "cores_available", "architecture", "machine_id")


def open_result(path: Path) -> Result:
    """A result file, or all of a folder's as one.

    Raises UserError when there is none, or one is damaged.
    """
    if not path.is_dir():
        return load(path)
    files = results_in(path)
    if not files:
        raise UserError(f"{path}: no result of deconvoy bench in it")
    whole = pooled([load(file) for file in files])
    for file in sorted(path.glob(f"*{SUFFIX}")):
        if file not in files:
            whole.skipped[file.name] = "no result of deconvoy bench"
    return whole


def is_result(path: Path) -> bool:
    """Whether a file is a result, as far as its beginning tells. Raises UserError when it cannot be
    read."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(4096)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    return begin.startswith(b"{") and b'"deconvoy"' in begin and b'"command"' in begin


def results_in(folder: Path) -> list[Path]:
    """The results in a folder, by their names. Raises UserError when it cannot be read."""
    try:
        several = sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}") from None
    return [path for path in several if is_result(path)]


def pooled(several: list[Result]) -> Result:
    """The runs of all, oldest first. Those from another machine than the newest one's have its
    name; those of a runtime that is another one by now are left out, which is told as skipped."""
    in_order = sorted(several, key=lambda one: one.created_unix_s)
    newest = in_order[-1]
    runtimes = {name: what for one in in_order for name, what in one.runtimes.items()}
    whole = replace(newest, runs=[], machines={}, runtimes=runtimes, skipped=dict(newest.skipped))
    # What is still to be run is known of a series, not of several.
    whole.settings = {name: value for name, value in newest.settings.items() if name != "cases"}
    for one in in_order:
        elsewhere = ""
        if identity(one.machine) != identity(newest.machine):
            elsewhere = label(one.machine, whole.machines)
            whole.machines[elsewhere] = one.machine
        whole.machines |= one.machines
        older = {name for name, what in one.runtimes.items() if what != runtimes[name]}
        for run in one.runs:
            if run.runtime not in older:
                whole.runs.append(replace(run, machine=run.machine or elsewhere))
        for name in older:
            whole.skipped[name] = f"older runs, by {one.runtimes[name]}"
    return whole


def identity(machine: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(machine.get(name) for name in IDENTITY)


def label(machine: dict[str, Any], others: dict[str, dict[str, Any]]) -> str:
    """A short name of a machine, `AMD EPYC 7B13, 4 cores`, that no other one has."""
    name = f"{machine.get('processor')}, {machine.get('cores_available')} cores"
    names = itertools.chain([name], (f"{name} ({number})" for number in itertools.count(2)))
    same = identity(machine)
    return next(one for one in names if one not in others or identity(others[one]) == same)
