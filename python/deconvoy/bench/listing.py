"""`deconvoy bench --list`: which scenarios there are, and what runs them on this machine."""

from __future__ import annotations

import json

import click

from deconvoy import mixes, output
from deconvoy.bench import runtimes
from deconvoy.bench.catalogue import SCENARIO_LIST, Scenario
from deconvoy.bench.languages import Installed
from deconvoy.bench.mixed import MIX
from deconvoy.bench.runtimes import Available


def show_what_there_is(as_json: bool) -> None:
    """Prints the scenarios, the runtimes found, and what would bring the others."""
    there = runtimes.available()
    found, missing = there
    if as_json:
        rows = [
            {"scenario": one.name, "modes": one.modes, "runtimes": run_by(one, there)}
            for one in SCENARIO_LIST
        ]
        click.echo(json.dumps({"version": 1, "scenarios": rows, "missing": missing}))
        return
    console = output.console()
    table = output.table("scenario", "work", "modes", "run by")
    for one in SCENARIO_LIST:
        modes = ", ".join(mode for mode in one.modes if mode)
        others = [name for name in run_by(one, there) if isinstance(found[name], Installed)]
        table.add_row(one.name, one.title, modes, ", ".join(["CPythons", *others]))
    console.print(table)
    console.print(f"workloads: {', '.join(f'{MIX}{name}' for name in mixes.names())}, {MIX}FILE")
    console.print(f"runtimes here: {', '.join(found)}; lab:LOCK, sim:POLICY@CORES")
    for name, why in missing.items():
        console.print(f"missing: {name}: {output.plain(why)}")


def run_by(scenario: Scenario, there: Available) -> list[str]:
    """The runtimes of this machine that have a program of a scenario, policies aside."""
    return [
        name
        for name, one in there[0].items()
        if not isinstance(one, Installed) or one.language.name in scenario.languages
    ]
