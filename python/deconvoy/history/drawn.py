"""The graph of a sweep as a plot: the metric, and below it each number that it is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from deconvoy.bench.drawings import COLOURS, FAINT, INK, LINE, MARKERS, STYLE
from deconvoy.bench.stats import Estimate
from deconvoy.history.graph import LOG_FROM, Graph, all_positive
from deconvoy.history.shown import date, number, percent

# In inches; a point of a picture is a 72nd of one.
WIDTH, FIRST, OTHER = 11.0, 3.4, 2.1
POINTS = 72

# Beyond so many revisions each is a dash: as many markers would make a page slow.
MOST_MARKERS = 400

MOST_LABELS = 12


@dataclass(frozen=True)
class Drawn:
    """A picture, with where its first and its last position are, in points from the left, and where
    its panels begin and end, from the top."""

    figure: Figure
    left: float
    right: float
    first: float
    last: float
    top: float
    bottom: float


def draw(graph: Graph) -> Drawn:
    """The whole of it."""
    with matplotlib.rc_context(STYLE):
        return _draw(graph)


def _draw(graph: Graph) -> Drawn:
    project = graph.session.project
    names = list(project.readers)
    heights = [FIRST] + [OTHER] * len(names)
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
    several: list[Axes] = [row[0] for row in panels]
    metric(several[0], graph)
    for axes, name in zip(several[1:], names, strict=True):
        absolute(axes, graph, name)
    last = len(graph.rows) - 1
    margin = max(0.02 * last, 0.6)
    several[0].set_xlim(-margin, last + margin)
    ticks = sorted({round(tick) for tick in np.linspace(0, last, min(8, last + 1))})
    several[-1].set_xticks(ticks, [label_of(graph, tick) for tick in ticks])
    for axes in several:
        for marked in graph.changes:
            point = marked.point
            axes.axvspan(point.first - 0.5, point.last + 0.5, color=COLOURS[1], alpha=0.13, lw=0)
            axes.axvline(point.position - 0.5, color=COLOURS[1], linewidth=1.2, linestyle="--")
    figure.draw_without_rendering()
    # Where its panels are now they stay: a file's own resolution would move them a bit.
    figure.set_layout_engine("none")
    box = several[0].get_position()
    bottom = several[-1].get_position().y0
    low, high = several[0].get_xlim()
    wide, tall = WIDTH * POINTS, sum(heights) * POINTS
    return Drawn(
        figure, box.x0 * wide, box.x1 * wide, low, high, (1 - box.y1) * tall, (1 - bottom) * tall
    )


def label_of(graph: Graph, position: int) -> str:
    revision = graph.rows[position].revision
    return f"{revision.short}\n{date(revision.when_s)}"


def metric(axes: Axes, graph: Graph) -> None:
    """The metric, its changes, versions, what was not measured."""
    project = graph.session.project
    rows = [row for row in graph.measured if not row.revision.is_merge]
    merges = [row for row in graph.measured if row.revision.is_merge]
    found = [row.metric for row in graph.measured if row.metric is not None]
    branch_rows = [
        (x, row) for one in graph.branches for x, row in zip(one.places, one.rows, strict=True)
    ]
    found += [row.metric for _, row in branch_rows if row.metric is not None]
    scale(axes, found)
    series = (
        ("a revision", [(row.position, row.metric) for row in rows], COLOURS[0], "o"),
        ("a merge", [(row.position, row.metric) for row in merges], COLOURS[2], "D"),
        ("on a merged branch", [(x, row.metric) for x, row in branch_rows], COLOURS[3], "^"),
    )
    for label, points, colour, marker in series:
        known = [(x, one) for x, one in points if one is not None]
        if known:
            marks(axes, [x for x, _ in known], [one for _, one in known], colour, marker, label)
    missing(axes, graph)
    better = "more is better" if project.better == "higher" else "less is better"
    axes.set_title(f"{project.metric.text} ({better})", color=INK)
    versions = graph.versions
    # Of many, some, evenly.
    for position, version in versions[:: max(1, math.ceil(len(versions) / MOST_LABELS))]:
        axes.axvline(position - 0.5, color=LINE, linewidth=1.0, zorder=0)
        axes.annotate(
            version,
            (position - 0.5, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, -9),
            textcoords="offset points",
            fontsize=7.5,
            color=FAINT,
        )
    for marked in graph.changes[:MOST_LABELS]:
        change = marked.change
        sign = "+" if change.after > change.before else "-"
        text = f"{sign}{percent(change.share)}" if change.has_share else number(change.after)
        axes.annotate(
            f"{marked.row.revision.short}\n{text}",
            (marked.point.position - 0.5, 0.03),
            xycoords=("data", "axes fraction"),
            xytext=(4, 10),
            textcoords="offset points",
            fontsize=8,
            color=INK,
        )
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        axes.legend(handles, labels, loc="best", fontsize=8, ncols=len(labels))


def absolute(axes: Axes, graph: Graph, name: str) -> None:
    """One of the numbers that are read, with each number of threads."""
    counts = graph.session.project.benchmark.threads
    found: list[Estimate] = []
    for place, count in enumerate(counts):
        rows = [row for row in graph.measured if (name, count) in row.parts]
        several = [row.parts[name, count] for row in rows]
        found += several
        colour, marker = COLOURS[(place + 4) % len(COLOURS)], MARKERS[place % len(MARKERS)]
        label = f"{count} thread" + ("" if count == 1 else "s")
        marks(axes, [row.position for row in rows], several, colour, marker, label)
    scale(axes, found)
    axes.set_title(name, color=INK)
    if len(counts) > 1:
        axes.legend(loc="best", fontsize=8, ncols=len(counts))


def scale(axes: Axes, found: Sequence[Estimate]) -> None:
    """By the logarithm, where values are far apart."""
    middles = [one.median for one in found]
    if found and all_positive(found) and max(middles) > LOG_FROM * min(middles):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def marks(
    axes: Axes,
    x: Sequence[float],
    several: Sequence[Estimate],
    colour: str,
    marker: str,
    label: str,
) -> None:
    """Medians with their intervals; many of them as two lines in all, with gaps."""
    at = np.asarray(x, dtype=float)
    gap = np.full(len(at), np.nan)
    low = np.array([one.low for one in several])
    high = np.array([one.high for one in several])
    middle = np.array([one.median for one in several])
    axes.plot(
        np.column_stack([at, at, gap]).ravel(),
        np.column_stack([low, high, gap]).ravel(),
        color=colour,
        linewidth=0.9,
        alpha=0.55,
    )
    if len(at) <= MOST_MARKERS:
        size = 4.5 if len(at) <= 120 else 3
        axes.plot(
            at, middle, linestyle="none", marker=marker, markersize=size, color=colour, label=label
        )
        return
    axes.plot(
        np.column_stack([at - 0.45, at + 0.45, gap]).ravel(),
        np.column_stack([middle, middle, gap]).ravel(),
        color=colour,
        linewidth=1.8,
        label=label,
    )


def missing(axes: Axes, graph: Graph) -> None:
    """What could not be measured: a cross at the foot of each, a band over those that follow one
    another for one reason."""
    for one in graph.spans:
        if one.count > 1:
            axes.axvspan(one.first - 0.5, one.last + 0.5, color=FAINT, alpha=0.10, lw=0)
    failed = [row.position for row in graph.rows if row.failure]
    if failed:
        axes.plot(
            failed,
            [0.02] * len(failed),
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            marker="x",
            markersize=4 if len(failed) <= MOST_MARKERS else 2,
            color=FAINT,
            label="not measured",
            clip_on=False,
        )
