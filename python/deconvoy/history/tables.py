"""What the verbs of `deconvoy history` print."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from deconvoy import output
from deconvoy.errors import UserError
from deconvoy.files import write_whole
from deconvoy.history import shown
from deconvoy.history.explain import Explanation, as_data
from deconvoy.history.finder import Finder
from deconvoy.history.session import Session
from deconvoy.history.sweep import Progress
from deconvoy.history.verdict import Outcome
from deconvoy.history.walk import Chain, Found, Search
from deconvoy.output import counted, plain

# How often it is said how far a sweep is, where no bar can be drawn, in seconds.
SAY_EVERY_S = 5.0


@contextmanager
def watching(say: Callable[[str], None]) -> Iterator[Callable[[str, int, int], None]]:
    """Shows how far a sweep is."""
    where = output.console(stderr=True)
    told = Progress(say, SAY_EVERY_S)
    with output.bar(where) as bar:
        task = bar.add_task("", total=None)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)
            if not where.is_terminal:
                told(what, done, total)

        yield progress


@contextmanager
def searching(
    say: Callable[[str], None], session: Session
) -> Iterator[Callable[[Chain, Finder], None]]:
    """Shows how far a search is: what was built, what was run, what is likeliest."""
    where = output.console(stderr=True)
    with where.status("begins") as status:
        last = (0, 0)

        def progress(chain: Chain, finder: Finder) -> None:
            nonlocal last
            built = session.laboratory.builder.made
            runs = finder.runs
            text = f"{counted(built, 'build')}, {counted(runs, 'round')}"
            if finder.builds:
                mass = finder.posterior.mass
                if len(mass) and mass.max() > 0:
                    best = int(mass.argmax())
                    inside = int((finder.posterior.mass > 1e-3).sum())
                    name = chain.sources[best].revision.short
                    text += (
                        f"; {counted(inside, 'revision')} left, likeliest {name} with "
                        f"{100 * mass[best]:.0f} %"
                    )
            if where.is_terminal:
                status.update(text)
            elif (built, runs) != last:
                say(text)
            last = built, runs

        yield progress


def show_sweep(
    session: Session, chain: Chain, chosen: Sequence[int], *, as_json: bool, as_raw: bool
) -> None:
    """The table of a sweep: a row a revision, those that failed below, for what reason."""
    versions = session.versions([one.revision for one in chain.sources])
    found = shown.rows(session, chain, versions)
    wanted = [found[position] for position in chosen]
    if as_json:
        click.echo(json.dumps(sweep_json(session, chain, wanted), indent=1))
        return
    if as_raw:
        for line in shown.raw(wanted):
            click.echo(line)
        return
    project = session.project
    parts = part_columns(wanted)
    names = [shown.part_name(project, part) for part in parts]
    columns = ["revision", "date", *(["version"] if versions else []), project.metric.text, *names]
    made = output.table(*columns, numbers=tuple(columns[2 + bool(versions) :]))
    for row in wanted:
        if row.metric is None:
            continue
        cells = [row.revision.short, shown.date(row.revision.when_s)]
        cells += [plain(row.version)] if versions else []
        cells.append(shown.with_interval(row.metric))
        cells += [shown.number(row.parts[part].median) for part in parts]
        made.add_row(*cells)
    where = output.console()
    where.print(made)
    for line in shown.span_lines(chain, shown.failed_spans(session, chain)):
        where.print(f"not measured: {plain(line)}", soft_wrap=True)


def part_columns(found: Sequence[shown.Row]) -> list[tuple[str, int]]:
    return list(dict.fromkeys(part for row in found for part in row.parts))


def sweep_json(session: Session, chain: Chain, found: Sequence[shown.Row]) -> dict[str, Any]:
    project = session.project
    return {
        "metric": project.metric.text,
        "better": project.better,
        "revisions": [
            {
                "id": row.revision.id,
                "date_unix_s": row.revision.when_s,
                "version": row.version or None,
                "build": row.key,
                "metric": estimate_json(row.metric),
                "samples": session.laboratory.values(row.key),
                "parts": {
                    shown.part_name(project, part): estimate_json(one)
                    for part, one in row.parts.items()
                },
                "failure": row.failure or None,
            }
            for row in found
        ],
    }


def estimate_json(one: Any) -> dict[str, Any] | None:
    if one is None:
        return None
    return {"median": one.median, "low": one.low, "high": one.high, "count": one.count}


def show_graph(
    session: Session,
    html: Path | None,
    svg: Path | None,
    png: Path | None,
    *,
    as_json: bool,
    as_raw: bool,
) -> None:
    """Raises UserError when nothing was measured yet, or a file cannot be written."""
    from deconvoy.bench.drawings import png_of, svg_of
    from deconvoy.history.drawn import draw
    from deconvoy.history.graph import graph
    from deconvoy.history.page import alarm_note, render, told_of
    from deconvoy.history.terminal import plots

    made = graph(session)
    if not made.measured:
        raise UserError("nothing of the range was measured yet: deconvoy history run")
    contents: dict[Path, str | bytes] = {}
    if html or svg or png:
        drawn = draw(made)
        contents |= {html: render(made, drawn)} if html else {}
        contents |= {svg: svg_of(drawn.figure)} if svg else {}
        contents |= {png: png_of(drawn.figure)} if png else {}
    for place, content in contents.items():
        try:
            write_whole(place, content, mode=0o644)
        except OSError as error:
            raise UserError(f"cannot write {place}: {error.strerror}") from None
    if as_raw:
        for line in shown.raw(made.rows):
            click.echo(line)
        return
    told = [told_of(made, one) for one in made.changes]
    if as_json:
        data = sweep_json(session, made.chain, made.rows)
        click.echo(json.dumps(data | {"changes": told, "false_alarms": none_if_nan(made.alarms)}))
        return
    where = output.console()
    if contents:
        for place in contents:
            where.print(plain(str(place)), soft_wrap=True)
        return
    click.echo(plots(made))
    for one in told:
        where.print(f"[bold]{one['id']}[/bold] {plain(one['text'])}", soft_wrap=True)
        where.print(f"  {plain(one['subject'])}; {one['interval']}", soft_wrap=True)
        for line in one["beside"]:
            where.print(f"  {plain(line)}", soft_wrap=True)
    if not told:
        where.print(f"no change of {100 * session.project.least:g} % and more is seen")
    where.print(alarm_note(made), soft_wrap=True)
    for line in shown.span_lines(made.chain, made.spans):
        where.print(f"not measured: {plain(line)}", soft_wrap=True)


def none_if_nan(value: float) -> float | None:
    return value if value == value else None


def show_found(
    session: Session, search: Search, found: Sequence[Found], seconds: float, *, as_json: bool
) -> None:
    """What a search came to, with the revision that it names."""
    if as_json:
        click.echo(json.dumps([shown.to_json(session, search, one) for one in found], indent=1))
        return
    where = output.console()
    for one in found:
        for line in answer(session, search, one):
            where.print(line, soft_wrap=True, markup=True)
    laboratory = session.laboratory
    failed = f" ({len(laboratory.failures)} cannot be measured)" if laboratory.failures else ""
    rounds = sum(map(len, laboratory.rounds.values()))
    dropped = laboratory.dropped
    beside = f"; {counted(dropped, 'run')} beside other work dropped" if dropped else ""
    where.print(
        f"{counted(laboratory.builder.made, 'build')} made now{failed}, "
        f"{counted(rounds, 'round')} in the store, {seconds:.0f} s{beside}",
        soft_wrap=True,
    )


def answer(session: Session, search: Search, found: Found) -> Iterator[str]:
    """A search, in sentences."""
    inner = found.innermost
    verdict = inner.verdict
    project = session.project
    chain, finder = inner.chain, inner.finder
    part = [chain.sources[p].revision.short for p in (finder.low, finder.high)]
    is_part = finder.low > 0 or finder.high < len(chain) - 1
    if is_part and verdict.outcome in (Outcome.UNDECIDED, Outcome.UNTESTABLE):
        yield f"from {part[0]} to {part[1]}:"
    if verdict.outcome is Outcome.FOUND:
        yield from the_change(session, search, found, inner)
        return
    if verdict.outcome is Outcome.NOTHING:
        why = f" ({verdict.why})" if verdict.why else ""
        where = "in all parts of the range" if is_part else "at both ends of the range"
        yield (
            f"no change: {project.metric.text} is the same {where}, as far as "
            f"{100 * project.least:g} %, with {shown.sure(verdict.probability)}{why}"
        )
    elif verdict.outcome is Outcome.UNDECIDED:
        yield f"undecided: {verdict.why}"
        if verdict.positions:
            names = ", ".join(one.revision.short for one in inner.named)
            yield f"  likeliest: {names}, {100 * verdict.probability:.0f} %"
    else:
        yield f"untestable: {verdict.why}"
    spans = shown.failed_spans(session, chain)
    mine = [one for one in spans if finder.low <= one.last and one.first <= finder.high]
    for line in shown.span_lines(chain, mine):
        yield f"  not measured: {plain(line)}"


def the_change(session: Session, search: Search, found: Found, inner: Found) -> Iterator[str]:
    project = session.project
    verdict = inner.verdict
    change = shown.change_of(search, verdict)
    named = [one.revision for one in inner.named]
    what = shown.how_it_changed(project, change)
    if len(named) == 1:
        yield f"[bold]{named[0].id}[/bold] made {plain(what)}"
    else:
        yield f"one of {len(named)} revisions, which cannot be told apart, made {plain(what)}"
        yield f"  {', '.join(one.id for one in named)}"
    yield f"  {shown.sure(verdict.probability)} sure"
    if inner is found:
        yield from gap(inner)
    if inner is not found:
        merge = inner.merge
        if merge is not None and merge not in named:
            yield f"  on a branch that {merge.short} has merged ({plain(merge.subject)})"
    elif found.inside is not None:
        inside = found.inside.verdict
        yield f"  it has merged a branch, in which the change was not found: {inside.outcome.value}"
        yield f"    {plain(inside.why)}" if inside.why else ""
        chain = found.inside.chain
        for line in shown.span_lines(chain, shown.failed_spans(session, chain)):
            yield f"    not measured: {plain(line)}"
    for revision in named[:3]:
        for line in shown.commit_lines(session.repository, revision):
            yield f"  {line}"
    yield from beside(session, inner)
    if verdict.others:
        yield "  there are other changes in the range: --all finds them"


def gap(inner: Found) -> Iterator[str]:
    """Of a list of revisions: what lies between two of them may be it as well."""
    positions = inner.verdict.positions
    chosen = inner.chain.sources
    before, named = chosen[positions[0] - 1].revision, chosen[positions[0]].revision
    if before.id not in named.parents:
        yield (
            f"  or one between {before.short} and {named.short}, which the list leaves out: "
            f'range = "{before.short}..{named.short}" tells'
        )


def beside(session: Session, inner: Found) -> Iterator[str]:
    """The numbers of the build before, and of the one named."""
    before, positions = inner.verdict.before, inner.verdict.positions
    if before is None or not positions:
        return
    laboratory = session.laboratory
    sources = inner.chain.sources
    after = next(
        (p for p in range(positions[-1], len(sources)) if sources[p].key in laboratory.rounds), None
    )
    if after is None:
        return
    parts = [
        shown.parts_of(session.project, laboratory.rounds.get(sources[p].key, []))
        for p in (before, after)
    ]
    old, new = (sources[p].revision.short for p in (before, after))
    yield f"  from {old} to {new}:"
    for line in shown.beside_the_ratio(session.project, *parts):
        yield f"    {line}"


def show_explanation(session: Session, found: Explanation, *, as_json: bool) -> None:
    """What differs between a revision and the one before."""
    if as_json:
        click.echo(json.dumps(as_data(found), indent=1))
        return
    columns = ("threads", "revision", "elapsed", "user", "system", "switches", "futex calls")
    locks = ("locks taken", "not free")
    numbers = (*columns[:1], *columns[2:], *locks)
    made = output.table(*columns, *locks, numbers=numbers)
    for count in found.threads:
        for side in (found.before, found.after):
            told, profile = side.accounted[count], side.profiles[count]
            times = (told[name].median for name in ("elapsed_s", "user_s", "system_s"))
            calls = side.calls.get(count)
            made.add_row(
                str(count),
                side.name,
                *(output.time_text(value * 1e9) for value in times),
                f"{told['voluntary_switches'].median:,.0f}",
                f"{calls['futex']:,.0f}" if calls else "-",
                f"{profile.taken:,}" if profile.processes else "-",
                f"{profile.contended:,}" if profile.processes else "-",
            )
    where = output.console()
    where.print(made)
    for line in found.found:
        where.print(plain(line), soft_wrap=True)
    if not found.before.calls:
        why = (
            "may not trace here" if shutil.which("strace") else "is not installed (Debian: strace)"
        )
        where.print(f"note: system calls are not counted: strace {why}")
