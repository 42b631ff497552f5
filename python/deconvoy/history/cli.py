"""`deconvoy history`: sweep the revisions of a repository, find the change, say why."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import click

from deconvoy import output
from deconvoy.errors import UserError
from deconvoy.files import check_new, write_whole
from deconvoy.history.project import NAME, template
from deconvoy.verbs import F

# How each outcome of a search ends the command.
FOUND, NOTHING, UNDECIDED, UNTESTABLE = 0, 3, 4, 5

EPILOG = """\b
Which change made it slow?
  deconvoy history init            # writes deconvoy.toml, to fill in
  deconvoy history find            # names the revision, with as few builds as noise allows
  deconvoy history explain REV     # what it changed: processor time, system calls, locks
  deconvoy history run --evenly 50
  deconvoy history graph --html history.html

The exit status of find: 0 found, 3 no change, 4 undecided, 5 nothing can be measured."""


@click.group(epilog=EPILOG)
def history() -> None:
    """Sweep the revisions of a repository (Git, Fossil), measure each, find the change."""


def project_option(function: F) -> F:
    option = click.option(
        "--project",
        "-p",
        "file",
        type=click.Path(path_type=Path),
        default=NAME,
        show_default=True,
        metavar="FILE",
        help="The project file.",
    )
    return option(function)


def retry_option(function: F) -> F:
    option = click.option("--retry", is_flag=True, help="Try again what could not be measured.")
    return option(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")(function)


def sayer() -> Callable[[str], None]:
    where = output.console(stderr=True)

    def say(text: str) -> None:
        where.print(f"deconvoy: {output.plain(text)}", soft_wrap=True)

    return say


@history.command()
@click.argument("file", type=click.Path(path_type=Path), default=NAME)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def init(file: Path, force: bool) -> None:
    """Write a project file with comments, to fill in."""
    if file.is_dir():
        file = file / NAME
    if file.exists() and not force:
        raise UserError(f"{file} exists: --force replaces it")
    try:
        write_whole(file, template(), mode=0o644)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
    print(f"{file}: fill it in, then: deconvoy history find")


@history.command()
@project_option
@click.option("--every", type=click.IntRange(1), metavar="N", help="Every n-th revision.")
@click.option("--evenly", type=click.IntRange(2), metavar="N", help="So many, evenly spaced.")
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(1, 256),
    default=max(1, len(os.sched_getaffinity(0)) // 2),
    show_default=True,
    help="Builds at a time.",
)
@click.option("--raw", "as_raw", is_flag=True, help="A line a revision: name, version, RATIO.")
@retry_option
@json_option
def run(
    file: Path,
    every: int | None,
    evenly: int | None,
    jobs: int,
    as_raw: bool,
    retry: bool,
    as_json: bool,
) -> int:
    """Build and measure all revisions of the range, or some.

    What was built and measured is kept: an interrupted sweep goes on where it was."""
    from deconvoy.history import sweep, tables
    from deconvoy.history.session import opened

    if every and evenly:
        raise UserError("--every or --evenly, not both")
    say = sayer()
    with opened(file, say, jobs) as session:
        if retry:
            forget(session)
        chain = session.chain()
        chosen = list(range(len(chain)))
        if every:
            chosen = sweep.every(chain, every)
        elif evenly:
            chosen = sweep.evenly(chain, evenly)
        sources = [chain.sources[position] for position in chosen]
        builds = len(sweep.distinct(sources))
        what = output.counted(len(sources), "revision")
        say(f"{what}, {output.counted(builds, 'different build')}")
        with tables.watching(say) as progress:
            done = sweep.sweep(session.laboratory, sources, progress)
        if done.over_size:
            gigabytes = done.over_size / 2**30
            say(f"builds take {gigabytes:.1f} GiB more than store.size: build.keep takes less")
        if done.missing:
            rounds = output.counted(done.missing, "round")
            say(f"{rounds} missing: other programs used the machine; run it again to go on")
        tables.show_sweep(session, chain, chosen, as_json=as_json, as_raw=as_raw)
        return UNDECIDED if done.missing else 0


def forget(session: object) -> None:
    """What could not be measured is tried again."""
    from deconvoy.history.session import Session

    assert isinstance(session, Session)
    laboratory = session.laboratory
    session.store.forget_failures(laboratory.builder.recipe, laboratory.measure_name)
    laboratory.failures.clear()


@history.command()
@project_option
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999, min_open=True),
    help="Stop when so sure. Default: as the project file says, 0.95.",
)
@click.option("--all", "is_all", is_flag=True, help="All changes, not the largest alone.")
@retry_option
@json_option
def find(file: Path, confidence: float | None, is_all: bool, retry: bool, as_json: bool) -> int:
    """Name the revision where the metric changed, with as few builds and runs as noise allows."""
    from deconvoy.history import tables
    from deconvoy.history.session import opened

    say = sayer()
    begun = time.monotonic()
    with opened(file, say) as session:
        if retry:
            forget(session)
        chain = session.chain()
        builds = output.counted(chain.distinct, "different build")
        say(f"{output.counted(len(chain), 'revision')}, {builds}")
        search = session.search(say, confidence)
        with tables.searching(say, session) as progress:
            search.progress = progress
            found = search.all(chain) if is_all else [search.through(chain)]
        seconds = time.monotonic() - begun
        tables.show_found(session, search, found, seconds, as_json=as_json)
        outcome = found[0].verdict.outcome.name
        return {"FOUND": FOUND, "NOTHING": NOTHING, "UNDECIDED": UNDECIDED}.get(outcome, UNTESTABLE)


@history.command()
@project_option
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="One page, offline.")
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="A picture.")
@click.option("--png", type=click.Path(path_type=Path), metavar="FILE", help="A picture.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@json_option
def graph(
    file: Path, html: Path | None, svg: Path | None, png: Path | None, force: bool, as_json: bool
) -> None:
    """Draw what was measured: the metric and what it is made of, against revisions."""
    from deconvoy.history import tables
    from deconvoy.history.session import opened

    places = [place for place in (html, svg, png) if place is not None]
    for place in places:
        check_new(place, force)
    with opened(file) as session, output.working("drawing"):
        tables.show_graph(session, html, svg, png, as_json=as_json)
