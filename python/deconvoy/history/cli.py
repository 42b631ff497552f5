"""`deconvoy history`: sweep the revisions of a repository, find the change, say why."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deconvoy import output
from deconvoy.bench.guard import Ended, guard, signals_as_interrupts
from deconvoy.errors import UserError
from deconvoy.files import check_new, write_whole
from deconvoy.history.project import NAME, template
from deconvoy.verbs import F

if TYPE_CHECKING:
    from deconvoy.history.builds import Source
    from deconvoy.history.session import Session

# How a search that has found nothing ends the command.
NOTHING, UNDECIDED, UNTESTABLE = 3, 4, 5

EPILOG = """\b
Which change made it slow?
  deconvoy history init            # writes deconvoy.toml, to fill in
  deconvoy history find            # names the revision, with as few builds as noise allows
  deconvoy history explain REV     # what it changed: processor time, system calls, locks
  deconvoy history run --evenly 50
  deconvoy history graph --html history.html

The exit status of find: 0 found, 3 no change, 4 undecided, 5 nothing can be measured."""


@click.group(epilog=EPILOG, invoke_without_command=True)
@click.pass_context
def history(ctx: click.Context) -> None:
    """Sweep the revisions of a repository (Git, Fossil), measure each, find the change."""
    if ctx.invoked_subcommand is None:
        raise UserError("no verb; `deconvoy history --help` lists them")


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


def cluster_option(function: F) -> F:
    option = click.option(
        "--cluster",
        metavar="ADDRESS",
        help="Build and measure on the workers of this Dask cluster, one at a time on each "
        "machine.",
    )
    return option(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")(function)


def sayer() -> Callable[[str], None]:
    where = output.console(stderr=True)

    def say(text: str) -> None:
        where.print(f"deconvoy: {output.plain(text)}", soft_wrap=True)

    return say


@contextmanager
def interruptible(say: Callable[[str], None]) -> Iterator[None]:
    """What was begun is ended on the way out, and it is said that nothing was lost."""
    try:
        with signals_as_interrupts():
            yield
    except KeyboardInterrupt as interrupt:
        guard.end_all()
        say("interrupted; what was built and measured is kept: the same command goes on")
        if isinstance(interrupt, Ended):
            sys.exit(128 + interrupt.number)
        raise


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
        write_whole(file, template(range_of(file.absolute().parent)), mode=0o644)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
    print(f"{file}: fill it in, then: deconvoy history find")


def range_of(folder: Path) -> str | None:
    """The last revisions of the repository that a folder is in, if it is in one."""
    from deconvoy.history.fossil import is_fossil
    from deconvoy.history.git import last_revisions

    return "root:trunk..trunk" if is_fossil(folder) else last_revisions(folder)


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
@cluster_option
@json_option
def run(
    file: Path,
    every: int | None,
    evenly: int | None,
    jobs: int,
    as_raw: bool,
    retry: bool,
    cluster: str | None,
    as_json: bool,
) -> int:
    """Build and measure all revisions of the range, or some.

    What was built and measured is kept: an interrupted sweep goes on where it was."""
    from deconvoy.history import sweep, tables
    from deconvoy.history.session import opened

    if every and evenly:
        raise UserError("--every or --evenly, not both")
    if as_raw and as_json:
        raise UserError("--raw or --json, not both")
    say = sayer()
    with interruptible(say), opened(file, say, jobs) as session:
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
            missing = swept(session, sources, cluster, progress, say)
        if missing:
            rounds = output.counted(missing, "round")
            say(f"{rounds} missing: other programs used the machine; run it again to go on")
        tables.show_sweep(session, chain, chosen, as_json=as_json, as_raw=as_raw)
        return UNDECIDED if missing else 0


def swept(
    session: Session,
    sources: Sequence[Source],
    cluster: str | None,
    progress: Callable[[str, int, int], None],
    say: Callable[[str], None],
) -> int:
    """Builds and measures; how many rounds are missing."""
    from deconvoy.history.sweep import distinct, sweep

    if cluster is not None:
        from deconvoy.bench.cluster import Cluster
        from deconvoy.history.cluster import sweep_on

        with Cluster(cluster) as machines:
            return sweep_on(machines, session, distinct(sources), progress)
    done = sweep(session.laboratory, sources, progress)
    if done.over_size:
        gigabytes = done.over_size / 2**30
        say(f"builds take {gigabytes:.1f} GiB more than store.size: build.keep takes less")
    return done.missing


def forget(session: Session) -> None:
    """What could not be measured is tried again."""
    laboratory = session.laboratory
    recipe, measure = laboratory.builder.recipe, laboratory.measure_name
    session.store.forget_failures(recipe, measure, {laboratory.machine})
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
@cluster_option
@json_option
def find(
    file: Path,
    confidence: float | None,
    is_all: bool,
    retry: bool,
    cluster: str | None,
    as_json: bool,
) -> int:
    """Name the revision where the metric changed, with as few builds and runs as noise allows."""
    from deconvoy.history import tables
    from deconvoy.history.session import opened
    from deconvoy.history.verdict import Outcome

    statuses = {
        Outcome.FOUND: 0,
        Outcome.NOTHING: NOTHING,
        Outcome.UNDECIDED: UNDECIDED,
        Outcome.UNTESTABLE: UNTESTABLE,
    }
    say = sayer()
    begun = time.monotonic()
    with ExitStack() as held:
        held.enter_context(interruptible(say))
        session = held.enter_context(opened(file, say))
        if retry:
            forget(session)
        chain = session.chain()
        builds = output.counted(chain.distinct, "different build")
        say(f"{output.counted(len(chain), 'revision')}, {builds}")
        if cluster is None:
            search = session.search(say, confidence)
        else:
            from deconvoy.history.cluster import search_on

            search = held.enter_context(search_on(cluster, session, say, confidence))
        with tables.searching(say, session) as progress:
            search.progress = progress
            found = search.all(chain) if is_all else [search.through(chain)]
        if found[0].verdict.outcome is Outcome.UNTESTABLE:
            session.laboratory.blame_the_project()
        seconds = time.monotonic() - begun
        tables.show_found(session, search, found, seconds, as_json=as_json)
        return statuses[found[0].verdict.outcome]


@history.command()
@project_option
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="One page, offline.")
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="A picture.")
@click.option("--png", type=click.Path(path_type=Path), metavar="FILE", help="A picture.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--raw", "as_raw", is_flag=True, help="A line a revision: name, version, RATIO.")
@json_option
def graph(
    file: Path,
    html: Path | None,
    svg: Path | None,
    png: Path | None,
    force: bool,
    as_raw: bool,
    as_json: bool,
) -> None:
    """Draw what was measured: the metric and what it is made of, against revisions."""
    from deconvoy.history import tables
    from deconvoy.history.session import opened

    if as_raw and as_json:
        raise UserError("--raw or --json, not both")
    places = [place for place in (html, svg, png) if place is not None]
    for place in places:
        check_new(place, force)
    with opened(file) as session, output.working("drawing"):
        # Whatever machine has measured it.
        session.laboratory.learn(session.store.all_machines(), None)
        tables.show_graph(session, html, svg, png, as_json=as_json, as_raw=as_raw)


@history.command()
@click.argument("revision")
@project_option
@json_option
def explain(revision: str, file: Path, as_json: bool) -> None:
    """Say why a revision changed the metric: it and the one before, under the system's accounting
    and a profile of their locks."""
    from deconvoy.history import tables
    from deconvoy.history.explain import explain as explained
    from deconvoy.history.session import opened

    say = sayer()
    with interruptible(say), opened(file, say) as session:
        found = explained(session, session.repository.revision(revision), say)
        tables.show_explanation(session, found, as_json=as_json)
