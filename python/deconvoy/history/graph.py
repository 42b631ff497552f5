"""What a graph of a sweep shows: revisions in order, what was measured of each, what changed where,
what could not be measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deconvoy.bench.stats import Estimate
from deconvoy.history.builds import Source
from deconvoy.history.changes import Point, changes, false_alarms
from deconvoy.history.posterior import Build
from deconvoy.history.session import Session
from deconvoy.history.shown import Change, Row, change_of_step, failed_spans, rows
from deconvoy.history.spans import Span
from deconvoy.history.walk import Chain, Search

# Values that differ by more are drawn by their logarithm.
LOG_FROM = 5.0


@dataclass(frozen=True)
class Marked:
    """A change that was detected, with what is said of it."""

    point: Point
    change: Change
    row: Row


@dataclass(frozen=True)
class Branch:
    """Revisions of a branch that was merged, which were measured, each with where it stands between
    the revision before the merge and the merge."""

    merge: int
    places: list[float]
    rows: list[Row]


@dataclass(frozen=True)
class Graph:
    """`alarms`: in which share of shuffles of the numbers at hand a change is seen."""

    session: Session
    chain: Chain
    rows: list[Row]
    branches: list[Branch]
    spans: list[Span]
    changes: list[Marked]
    alarms: float
    tags: Mapping[str, str]

    @property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if row.metric is not None]

    @property
    def versions(self) -> list[tuple[int, str]]:
        """Where a revision calls itself otherwise than the one before; tags, if none says what it
        is."""
        found: list[tuple[int, str]] = []
        if not any(row.version for row in self.rows):
            pairs = ((row.position, self.tags.get(row.revision.id)) for row in self.rows)
            return [(position, tag) for position, tag in pairs if tag is not None]
        for row in self.rows:
            if row.version and (not found or found[-1][1] != row.version):
                found.append((row.position, row.version))
        return found


def graph(session: Session) -> Graph:
    """Of all that is in the store."""
    chain = session.chain()
    versions = session.versions([one.revision for one in chain.sources])
    found = rows(session, chain, versions)
    search = session.search(lambda _: None)
    points, alarms = detected(session, chain, search)
    marked = [
        Marked(point, change_of_step(search, point.step), found[point.position]) for point in points
    ]
    branches = list(measured_branches(session, chain, versions))
    spans = failed_spans(session, chain)
    tags = session.repository.tags()
    return Graph(session, chain, found, branches, spans, marked, alarms, tags)


def detected(session: Session, chain: Chain, search: Search) -> tuple[list[Point], float]:
    """The changes in what was measured, and how often there would be one by chance."""
    laboratory = session.laboratory
    builds, last = [], None
    for position, source in enumerate(chain.sources):
        # Of neighbours that are built from the same, the first stands for all.
        if source.key != last and laboratory.rounds.get(source.key):
            values = laboratory.values(source.key)
            builds.append(Build(position, tuple(search.sample(value) for value in values)))
        last = source.key
    limits = search.limits
    found = changes(builds, chain.weights, limits.least, limits.confidence)
    return found, false_alarms(builds, found, limits.least, limits.confidence)


def measured_branches(
    session: Session, chain: Chain, versions: Mapping[str, str]
) -> Sequence[Branch]:
    """Of what was merged, what was measured."""
    found = []
    revisions = [source.revision for source in chain.sources]
    brought = session.repository.brought(revisions)
    merged = [one for branch in brought.values() for one in branch]
    keys = dict(zip(merged, session.keys(merged), strict=True)) if merged else {}
    for position, merge in enumerate(revisions):
        branch = brought.get(merge.id, [])
        if position == 0 or not branch:
            continue
        inner = Chain([Source(one, keys[one]) for one in branch], [1.0] * len(branch))
        several = rows(session, inner, versions)
        step = 1 / (len(branch) + 1)
        places = [position - 1 + step * (number + 1) for number in range(len(branch))]
        pairs = [pair for pair in zip(places, several, strict=True) if pair[1].metric is not None]
        if pairs:
            measured = [row for _, row in pairs]
            found.append(Branch(position, [place for place, _ in pairs], measured))
    return found


def all_positive(several: Sequence[Estimate]) -> bool:
    return all(one.low > 0 and math.isfinite(one.high) for one in several)
