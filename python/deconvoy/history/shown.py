"""What a sweep or a search has come to, as tables and sentences."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deconvoy.bench.stats import Estimate, estimate
from deconvoy.history.posterior import Step
from deconvoy.history.project import Project
from deconvoy.history.repository import Repository, Revision
from deconvoy.history.session import Session
from deconvoy.history.spans import Span, spans
from deconvoy.history.store import Round
from deconvoy.history.verdict import Outcome, Verdict
from deconvoy.history.walk import Chain, Found, Search
from deconvoy.output import counted, plain


@dataclass(frozen=True)
class Row:
    """What is known of a revision: the metric, and each number it is made of, as medians with
    intervals; or nothing, if it was not measured."""

    position: int
    revision: Revision
    key: str
    version: str
    metric: Estimate | None
    parts: Mapping[tuple[str, int], Estimate]
    failure: str


def rows(session: Session, chain: Chain, versions: Mapping[str, str]) -> list[Row]:
    laboratory, project = session.laboratory, session.project
    made: dict[str, tuple[Estimate | None, dict[tuple[str, int], Estimate]]] = {}
    found = []
    for position, source in enumerate(chain.sources):
        if source.key not in made:
            several = laboratory.rounds.get(source.key, [])
            metric = estimate(laboratory.values(source.key)) if several else None
            made[source.key] = metric, parts_of(project, several)
        metric, parts = made[source.key]
        failure = laboratory.failures.get(source.key)
        version = versions.get(source.revision.id, "")
        told = "" if failure is None else str(failure)
        found.append(Row(position, source.revision, source.key, version, metric, parts, told))
    return found


def parts_of(project: Project, several: Sequence[Round]) -> dict[tuple[str, int], Estimate]:
    """Of each number that is read, with each number of threads."""
    if not several:
        return {}
    return {
        (name, threads): estimate([one.values[threads][name] for one in several])
        for name in project.readers
        for threads in project.benchmark.threads
    }


def number(value: float) -> str:
    """Three digits, without an exponent where people need none."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 9)}f}"


def with_interval(one: Estimate) -> str:
    if not one.has_interval:
        return number(one.median)
    return f"{number(one.median)} [{number(one.low)}, {number(one.high)}]"


def part_name(project: Project, part: tuple[str, int]) -> str:
    name, threads = part
    return name if len(project.benchmark.threads) == 1 else f"{name}[{threads}]"


def date(when_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(when_s))


def raw(found: Sequence[Row]) -> list[str]:
    """As the paper prints it: revision, version, RATIO, the number."""
    lines = []
    for row in found:
        if row.metric is not None:
            version = f"{row.version} " if row.version else ""
            lines.append(f"{row.revision.short} {version}RATIO {number(row.metric.median)}")
    return lines


def span_lines(chain: Chain, found: Sequence[Span]) -> list[str]:
    """What could not be measured, and why, a line a span."""
    lines = []
    for one in found:
        first, last = (chain.sources[p].revision.short for p in (one.first, one.last))
        where = first if one.first == one.last else f"{first} to {last}"
        how_many = "" if one.count == 1 else f" ({counted(one.count, 'revision')})"
        lines.append(f"{where}{how_many}: {one.failure}")
    return lines


def failed_spans(session: Session, chain: Chain) -> list[Span]:
    return spans(chain, session.laboratory.failures, session.laboratory.rounds)


@dataclass(frozen=True)
class Change:
    """From what to what the metric has changed, and what it is made of."""

    before: float
    after: float
    share: float
    low: float
    high: float

    @property
    def has_share(self) -> bool:
        """Whether it is a matter of how many times more."""
        return self.before > 0 and self.after > 0


def change_of(search: Search, verdict: Verdict) -> Change:
    assert verdict.step is not None
    return change_of_step(search, verdict.step)


def change_of_step(search: Search, step: Step) -> Change:
    before, after = search.value(step.old), search.value(step.new)
    share, low, high = (math.expm1(min(part, 700.0)) for part in (step.size, step.low, step.high))
    return Change(before, after, share, low, high)


def percent(share: float) -> str:
    return f"{100 * abs(share):.3g} %"


def sure(probability: float) -> str:
    """`97.3 %`; never 100."""
    return "more than 99.9 %" if probability > 0.999 else f"{100 * probability:.1f} %"


def how_it_changed(project: Project, change: Change) -> str:
    """`time[1] / time[2] 20.3 % lower (18.1 to 22.5 %): 1.92 -> 1.53: worse`."""
    is_more = change.after > change.before
    verdict = "better" if (project.better == "higher") == is_more else "worse"
    levels = f"{number(change.before)} -> {number(change.after)}"
    way = "higher" if is_more else "lower"
    if not change.has_share:
        return f"{project.metric.text} {way}: {levels}: {verdict}"
    near, far = sorted((abs(change.low), abs(change.high)))
    if change.after > 10 * change.before:
        times = change.after / change.before
        return f"{project.metric.text} {number(times)} times higher: {levels}: {verdict}"
    return (
        f"{project.metric.text} {percent(change.share)} {way} "
        f"({percent(near)[:-2]} to {percent(far)}): {levels}: {verdict}"
    )


def beside_the_ratio(
    project: Project,
    before: Mapping[tuple[str, int], Estimate],
    after: Mapping[tuple[str, int], Estimate],
) -> list[str]:
    """What became of each number: a ratio may be better because everything is worse."""
    lines = []
    moved: list[tuple[tuple[str, int], float]] = []
    for part in after:
        if part not in before:
            continue
        old, new = before[part], after[part]
        line = f"{part_name(project, part)}: {with_interval(old)} -> {with_interval(new)}"
        if old.median > 0:
            share = new.median / old.median - 1
            line += f" ({'+' if share >= 0 else '-'}{percent(share)})"
            if part in project.metric.uses and (new.low > old.high or new.high < old.low):
                moved.append((part, share))
        lines.append(line)
    uses = set(project.metric.uses)
    if len(uses) > 1 and len(moved) == len(uses):
        if all(share > project.least for _, share in moved):
            lines.append("note: every number that the metric is made of became higher")
        elif all(share < -project.least for _, share in moved):
            lines.append("note: every number that the metric is made of became lower")
    return lines


def commit_lines(repository: Repository, revision: Revision, most: int = 12) -> list[str]:
    """Author, date, message and files of a revision."""
    details = repository.details(revision)
    lines = [f"{plain(revision.author)}, {date(revision.when_s)}"]
    lines += [f"    {plain(line)}" for line in details.message.splitlines()[:most]]
    lines += [f"  {plain(line)}" for line in details.files[:most]]
    if len(details.files) > most:
        lines.append(f"  and {counted(len(details.files) - most, 'file')} more")
    return lines


def to_json(session: Session, search: Search, found: Found) -> dict[str, Any]:
    """A search, for a program."""
    inner = found.innermost
    verdict = inner.verdict
    data: dict[str, Any] = {
        "outcome": verdict.outcome.value,
        "why": verdict.why,
        "probability": verdict.probability,
        "metric": session.project.metric.text,
        "revisions": [revision_json(session, one.revision) for one in inner.named],
        "merged_by": [
            one.revision.id
            for one in found.named
            if one.revision not in {each.revision for each in inner.named}
        ],
        "other_changes": verdict.others,
    }
    if verdict.step is not None and verdict.outcome is not Outcome.NOTHING:
        change = change_of(search, verdict)
        data["change"] = {
            "before": change.before,
            "after": change.after,
            "share": change.share if change.has_share else None,
            "interval": [change.low, change.high] if change.has_share else None,
        }
    return data


def revision_json(session: Session, revision: Revision) -> dict[str, Any]:
    details = session.repository.details(revision)
    return {
        "id": revision.id,
        "author": revision.author,
        "date_unix_s": revision.when_s,
        "message": details.message,
        "files": list(details.files),
    }
