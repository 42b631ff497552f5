"""`deconvoy policies`: what there is to choose from, and `search`: for better ones."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from deconvoy import mixes, threeways
from deconvoy import search as searching
from deconvoy._native import MAX_CORES
from deconvoy._native import policies as catalogue
from deconvoy.bench.mixed import MIX
from deconvoy.bench.results import Result
from deconvoy.bench.series import new_name, show_doubts
from deconvoy.bench.simulated import costs_named
from deconvoy.bench.summary import cells
from deconvoy.errors import UserError
from deconvoy.files import check_new
from deconvoy.output import bar, console, counted, plain, short_policy, table, time_text
from deconvoy.preload import STOCK, check_policy
from deconvoy.verbs import Counts

RULES = """\
priority takes rules NAME=N or tid:ID=N: N from -128 to 127, more goes first, 0 if no rule fits.
  NAME is a thread's name and may end in *; `deconvoy trace` says when a rule fits no thread."""


FIGURES = (
    "wait p99: of I/O-bound threads, geometric mean; kept: by those that compute,",
    "of the time that I/O leaves; Jain: the least even; longest wait: of any thread;",
    "beside: cores that the threads used while they did not have the lock.",
)
WINNER = (
    "*: the winner: of those on the front that are nowhere much worse than the default, the one",
    "with the least wait x loss.",
)


@click.group(
    invoke_without_command=True,
    epilog="Example: deconvoy run --policy timeout:interval=1ms -- python app.py",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")
@click.pass_context
def policies(context: click.Context, as_json: bool) -> None:
    """List the policies and their options, or search for better ones."""
    if context.invoked_subcommand is None:
        show(as_json)


def show(as_json: bool) -> None:
    """Print what there is."""
    if as_json:
        click.echo(json.dumps([as_data(*row) for row in catalogue()], indent=1))
        return
    out = console()
    listing = table("policy", "what it is", "as in")
    for name, summary, example, _ in catalogue():
        listing.add_row(name, summary, plain(example))
    listing.add_row(STOCK, "CPython's own, untouched; to trace with", STOCK)
    out.print(listing)
    options = table("option", "of", "default", "least", "most", "what it is")
    for policy, _, _, rows in catalogue():
        for name, unit, default, least, most, meaning in rows or []:
            number = str(default) if unit != "ns" else time_text(default or 0)
            preset = "the program's" if default is None else number
            options.add_row(name, policy, preset, least, most, meaning)
    out.print(options)
    out.print(RULES)


def as_data(
    name: str, summary: str, example: str, options: list[tuple[Any, ...]] | None
) -> dict[str, Any]:
    """A policy as JSON has it; `options` is null for one that takes rules."""
    keys = ("name", "unit", "default", "least", "most", "meaning")
    listed = None
    if options is not None:
        listed = [dict(zip(keys, option, strict=True)) for option in options]
    return {"name": name, "summary": summary, "example": example, "options": listed}


@policies.command(epilog="Example: deconvoy policies search --cores 2,8,64 -o search.jsonl")
@click.option(
    "--mix",
    "names",
    multiple=True,
    metavar="NAME",
    help="A workload: one of the project's, or a file. Can be given again. Default: all of ours.",
)
@click.option(
    "--policy",
    "only",
    multiple=True,
    metavar="POLICY",
    help="Judge this one, and search for nothing. Can be given again.",
)
@click.option(
    "--cores", type=Counts(1, MAX_CORES), default="2,8,64", show_default=True, help="As a list."
)
@click.option(
    "--costs",
    default="",
    help="What operations take: vm, server, 2010. Default: as doctor --calibrate measured.",
)
@click.option("--population", type=click.IntRange(4, 10_000), default=64, show_default=True)
@click.option("--generations", type=click.IntRange(0, 1000), default=8, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**63), default=1, show_default=True)
@click.option("--workers", type=click.IntRange(1, 1024), help="Default: as many as cores here.")
@click.option(
    "-o", "--output", "place", type=click.Path(path_type=Path), help="Every candidate, a line each."
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option(
    "--runs",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    help="Of the winner and the default on real threads: in the lab and under this CPython.",
)
@click.option("--json", "as_json", is_flag=True, help="The front as JSON, for a program.")
def search(
    names: tuple[str, ...],
    only: tuple[str, ...],
    cores: tuple[int, ...],
    costs: str,
    population: int,
    generations: int,
    seed: int,
    workers: int | None,
    place: Path | None,
    force: bool,
    runs: int,
    as_json: bool,
) -> None:
    """Search for policies that no other beats, in the simulator.

    Judged by the waits of I/O-bound threads, what those that compute keep, how evenly they share,
    and the longest wait of anybody, over all workloads and numbers of cores. The same seed gives
    the same outcome. All of it takes ten minutes on two cores; fewer generations take less.

    The winner is then run in the lab and under CPython, beside the default.
    """
    # As `bench` has them, too.
    names = tuple(name.removeprefix(MIX) for name in names)
    if place is not None:
        check_new(place, force)
    for policy in only:
        check_policy(policy)
        if policy == STOCK:
            raise UserError("stock cannot be simulated: its rule is timeout")
    one = searching.Search(
        on=searching.cases(names or mixes.names(), cores),
        costs=costs_named(costs),
        seed=seed,
        population=population,
        generations=generations,
        workers=workers or len(os.sched_getaffinity(0)),
    )
    out = console()
    if only:
        judged = run_search(one, place, only)
        if as_json:
            judged_data = [each.as_data() for each in judged]
            click.echo(json.dumps({"version": 1, "judged": judged_data}))
        else:
            out.print(front_table(judged, None, "judged"))
            for line in FIGURES:
                out.print(line, style="dim")
        return
    run_mixes = names or mixes.names()
    path = new_name(f"deconvoy-search-{time.strftime('%Y%m%d-%H%M%S')}")
    if runs:
        # Rather now than after minutes.
        check_new(path, force=False)
        threeways.check("adaptive", costs)
    found = run_search(one, place)
    known = {candidate.policy: candidate for candidate in one.evaluated}
    best = searching.winner(one.evaluated, known["adaptive"])
    if not as_json:
        out.print(front_table(found, best))
        out.print(front_table([known["adaptive"], known["timeout:5ms"], best], best, "beside it"))
        out.print(f"the winner: {plain(short_policy(best.policy))}", soft_wrap=True)
        for line in (*FIGURES, *WINNER):
            out.print(line, style="dim")
    pair = [*dict.fromkeys(["adaptive", best.policy])]
    result: Result | None = None
    if runs:
        try:
            stderr = console(stderr=True)
            result = threeways.compare(pair, run_mixes, costs, runs, seed, path, stderr)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None
    if as_json:
        data = {"winner": best.as_data(), "front": [each.as_data() for each in found]}
        data |= {"runs": [cell.row() for cell in cells(result).values()] if result else []}
        data |= {"skipped": result.skipped if result else {}}
        click.echo(json.dumps({"version": 1, **data}))
    elif result is not None:
        out.print(threeways.side_by_side(result, pair, run_mixes, costs))
        show_doubts(result, out)
        out.print(f"every number: {path}", soft_wrap=True)


def run_search(
    one: searching.Search, place: Path | None, only: Sequence[str] = ()
) -> list[searching.Candidate]:
    """Runs it, or judges `only` these; writes each candidate down as it comes."""
    total = len(only) or one.total
    stderr = console(stderr=True)
    progress = bar(stderr)
    try:
        file = place.open("w") if place is not None else None
    except OSError as error:
        raise UserError(f"cannot write {place}: {error.strerror}") from None
    if not stderr.is_terminal:
        each = counted(len(one.on), "simulation")
        stderr.print(f"deconvoy: {counted(total, 'candidate')}, {each} each")
    try:
        with progress:
            task = progress.add_task("searching", total=total)

            def told(candidate: searching.Candidate) -> None:
                progress.advance(task)
                if file is not None:
                    file.write(json.dumps(candidate.as_data()) + "\n")
                    file.flush()

            try:
                return one.judge_each(only, told) if only else one.run(told)
            except ValueError as error:
                raise UserError(str(error)) from None
    finally:
        if file is not None:
            file.close()


def front_table(
    found: Sequence[searching.Candidate],
    best: searching.Candidate | None,
    title: str = "the front: none of these is beaten by another",
) -> Table:
    numbers = ("wait p99", "kept", "Jain", "longest wait", "beside")
    listing = table("policy", *numbers, title=title, numbers=numbers)
    for each in found:
        figures = each.figures
        listing.add_row(
            plain(short_policy(each.policy)) + (" *" if each is best else ""),
            time_text(figures.wait_p99_ns),
            f"{100 * figures.kept:.2f} %",
            f"{figures.jain:.4f}",
            time_text(figures.longest_wait_ns),
            f"{figures.beside:.2f}",
        )
    return listing
