"""A result as plots: time against workers, latencies, ways to spread work, published figures.

Colours are those of Okabe and Ito, which colour-blind people tell apart; each series has its own
marker, too, for print.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter

from deconvoy import output
from deconvoy.bench.formats import SCENARIO as FORMAT
from deconvoy.bench.formats import design_of, is_format
from deconvoy.bench.ratios import ratios, row_name
from deconvoy.bench.respond import SIMULATED, SOCKETS
from deconvoy.bench.results import Result
from deconvoy.bench.scaling import LEAST_COUNTS, SAME_WORK, speedup, terms
from deconvoy.bench.scenario import DESIGNS
from deconvoy.bench.summary import MODES, Cell, Key, cells

# In a page these stand for the colours of its text and of its lines.
INK, FAINT, LINE = "#1c2128", "#667080", "#d8dde4"

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6d3b")
# Of sizes of a task.
LINES = ("-", "--", "-.")

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")

# Of a row in a plot with a line a runtime, and of a small plot among several, in inches.
ROW, WIDTH, SMALL = 0.27, 9.6, 2.5

# Of a distribution.
BINS = 60

# Small plots beside one another.
ACROSS = 4

# What a page or a file is drawn with; text stays text.
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "the same each time",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": FAINT,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True)
class Drawing:
    """A plot: its name in a file's name, what it shows, and how it is read."""

    name: str
    title: str
    caption: str
    figure: Figure

    def svg(self) -> str:
        return svg_of(self.figure)

    def png(self) -> bytes:
        return png_of(self.figure)


def svg_of(figure: Figure) -> str:
    """The picture alone, to stand in a page or in a file."""
    file = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def png_of(figure: Figure) -> bytes:
    """On white, for where an SVG cannot be shown."""
    file = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(file, format="png", dpi=150, facecolor="white")
    return file.getvalue()


def drawings(result: Result) -> Iterator[Drawing]:
    """All that the result has data for."""
    found = cells(result)
    for make in (against_workers, latencies, ways, published_and_measured):
        with matplotlib.rc_context(STYLE):
            yield from make(found)


def look_of(name: str) -> dict[str, Any]:
    """The colour and the marker of a mode, or of a design, the same in every plot."""
    known = MODES if name in MODES else ("", *DESIGNS)
    place = known.index(name) if name in known else len(known)
    colour = INK if name == "sequential" else COLOURS[(place - 1) % len(COLOURS)]
    return {"color": colour, "marker": MARKERS[place % len(MARKERS)]}


def seconds(value: float, _: object = None) -> str:
    return output.time_text(value * 1e9).replace(".00", "")


def with_interval(axes: Axes, x: Sequence[float], cells: Sequence[Cell], **look: Any) -> None:
    """The medians of elapsed times against `x`, with their intervals."""
    found = [cell.estimates["elapsed_s"] for cell in cells]
    below = [one.median - one.low for one in found]
    above = [one.high - one.median for one in found]
    middles = [one.median for one in found]
    axes.errorbar(
        x,
        middles,
        yerr=[below, above],
        markersize=5,
        linewidth=1.4,
        elinewidth=1,
        capsize=2,
        **look,
    )


def against_workers(found: dict[Key, Cell]) -> Iterator[Drawing]:
    """Of each scenario of the same work: the time against the number of workers."""
    several = map(together, found)
    for scenario in dict.fromkeys(one for one in several if one.partition("-")[0] in SAME_WORK):
        series = series_of(scenario, found)
        if not series:
            continue
        runtimes = list(dict.fromkeys(key.full_runtime for key in series))
        figure, places = small_plots(len(runtimes))
        for axes, runtime in zip(places, runtimes, strict=False):
            axes.set_title(runtime)
            mine = {key: points for key, points in series.items() if key.full_runtime == runtime}
            for key, points in mine.items():
                counts = [float(count) for count in points]
                name = design_of(key) if is_format(key) else str(key.mode)
                label = name + (f", size {key.size}" if key.size else "")
                sizes = sorted({other.size or 0 for other in mine})
                line = LINES[sizes.index(key.size or 0) % len(LINES)]
                look = look_of(name) | {"linestyle": line}
                with_interval(axes, counts, list(points.values()), label=label, **look)
                draw_law(axes, points, look["color"])
            counts_on_x(axes, {count for points in mine.values() for count in points})
        legend_of(figure, places[: len(runtimes)])
        yield Drawing(
            f"workers-{scenario}",
            f"{scenario}: time against workers",
            "Medians with 95 % intervals, both axes logarithmic. Dotted: the universal scalability "
            "law fitted to three or more worker counts.",
            figure,
        )


def together(key: Key) -> str:
    """The scenario; the designs of `format` are shown beside one another."""
    return FORMAT if is_format(key) else key.scenario


def series_of(scenario: str, found: dict[Key, Cell]) -> dict[Key, dict[int, Cell]]:
    """By runtime, mode and size, two or more worker counts; one worker of mode sequential begins
    every series."""
    several: dict[Key, dict[int, Cell]] = {}
    for key, cell in found.items():
        if together(key) == scenario and key.workers and "elapsed_s" in cell.estimates:
            several.setdefault(replace(key, workers=0), {})[key.workers] = cell
    made = {}
    for key, points in several.items():
        if key.mode == "sequential":
            continue
        first = several.get(replace(key, mode="sequential"), {})
        every = dict(sorted((first | points).items()))
        if len(every) > 1:
            made[key] = every
    return made


def draw_law(axes: Axes, points: dict[int, Cell], colour: str) -> None:
    if len(points) < LEAST_COUNTS:
        return
    counts = np.array(sorted(points), dtype=float)
    medians = np.array([points[int(count)].estimates["elapsed_s"].median for count in counts])
    ((one, contention, coherency),) = terms(counts, medians[None], coherent=True)
    dense = np.geomspace(counts[0], counts[-1], 40)
    axes.plot(dense, one / speedup(dense, contention, coherency), ":", color=colour, linewidth=1)


def small_plots(count: int) -> tuple[Figure, list[Axes]]:
    """So many small plots in rows; the rest of the last row is empty."""
    across = min(count, ACROSS)
    down = math.ceil(count / across)
    size = (max(WIDTH * across / ACROSS, 4.8), SMALL * down + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    places = list(figure.subplots(down, across, squeeze=False).flat)
    for axes in places[count:]:
        axes.set_axis_off()
    return figure, places


def counts_on_x(axes: Axes, counts: Iterable[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted(counts))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()
    axes.yaxis.set_major_locator(locator(*axes.get_ylim()))
    axes.yaxis.set_major_formatter(FuncFormatter(seconds))
    axes.set_xlabel("workers")


def locator(low: float, high: float) -> LogLocator:
    """Where a logarithmic axis has its numbers: two or more, whatever its range."""
    for least, subs in ((100, (1,)), (10, (1, 2, 5)), (3, (1, 1.5, 2, 3, 4, 6, 8))):
        if high / low >= least:
            return LogLocator(subs=subs)
    return LogLocator(
        subs=tuple(part / 10 for part in range(10, 100, 1 if high / low < 1.5 else 2))
    )


def legend_of(figure: Figure, places: Sequence[Axes]) -> None:
    """One for all plots, each series once."""
    known: dict[str, Any] = {}
    for axes in places:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            known.setdefault(label, handle)
    if known:
        figure.legend(
            list(known.values()), list(known), loc="outside lower center", ncols=min(len(known), 6)
        )


def rows_figure(count: int) -> tuple[Figure, Axes]:
    """A plot with a line for each of `count` things, the first on top."""
    figure = Figure(figsize=(WIDTH, ROW * count + 1.2), layout="constrained")
    axes = figure.subplots()
    axes.set_ylim(count - 0.5, -0.5)
    axes.grid(axis="y", linewidth=0.4)
    return figure, axes


def time_on_x(axes: Axes, what: str) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(locator(*axes.get_xlim()))
    axes.xaxis.set_major_formatter(FuncFormatter(seconds))
    axes.set_xlabel(what)


def latencies(found: dict[Key, Cell]) -> Iterator[Drawing]:
    """Of each scenario with messages or requests: how long single ones took."""
    parts = (("p50_ns", "o", "median"), ("p90_ns", "s", "90 %"), ("p99_ns", "^", "99 %"))
    for scenario in dict.fromkeys(key.scenario for key in found):
        several = [
            cell
            for key, cell in found.items()
            if key.scenario == scenario and (cell.median("p99_ns") or 0) > 0
            if "max_ns" in cell.estimates
        ]
        if not several:
            continue
        figure, axes = rows_figure(len(several))
        for place, cell in enumerate(several):
            draw_distribution(axes, place, cell)
        for (name, marker, label), colour in zip(parts, COLOURS, strict=False):
            x = [(cell.median(name) or 0) / 1e9 for cell in several]
            axes.plot(x, range(len(x)), linestyle="", marker=marker, color=colour, label=label)
        x = [(cell.median("max_ns") or 0) / 1e9 for cell in several]
        look: dict[str, Any] = {"linestyle": "", "marker": "|", "markersize": 9, "color": INK}
        axes.plot(x, range(len(x)), label="longest", **look)
        axes.set_yticks(range(len(several)), [row_name(cell.key) for cell in several])
        time_on_x(
            axes, "of a request, beyond what it waits" if is_respond(scenario) else "of a message"
        )
        legend_of(figure, [axes])
        yield Drawing(
            f"latency-{scenario}",
            f"{scenario}: how long single ones take",
            "Grey: how often which latency is, of all runs. Markers: medians. Logarithmic.",
            figure,
        )


def draw_distribution(axes: Axes, place: int, cell: Cell) -> None:
    """How often which latency is, of all runs of a cell: as high as it is frequent."""
    every = np.concatenate([run.values.get("latency_ns", []) for run in cell.runs]) / 1e9
    every = every[every > 0]
    edges = np.geomspace(every.min(), max(every.max(), every.min() * 1.001), BINS + 1)
    counts, _ = np.histogram(every, edges)
    heights = np.repeat(counts / counts.max() * 0.75, 2)
    outline = np.repeat(edges, 2)[1:-1]
    axes.fill_between(outline, place + 0.35, place + 0.35 - heights, color=LINE, linewidth=0)
    axes.plot([edges[0], edges[-1]], [place, place], color=FAINT, linewidth=0.8)


def is_respond(scenario: str) -> bool:
    return scenario in (SIMULATED, SOCKETS)


def ways(found: dict[Key, Cell]) -> Iterator[Drawing]:
    """Threads against forks against green threads: a line a runtime, a marker a mode."""
    by_scenario: dict[str, dict[str, dict[str, Cell]]] = {}
    for key, cell in found.items():
        if key.scenario == "messaging" or is_format(key) or key.mode is None:
            continue
        if "elapsed_s" not in cell.estimates:
            continue
        rows = by_scenario.setdefault(key.scenario, {})
        many = {
            other.workers
            for other in found
            if other.scenario == key.scenario and other.mode != "sequential"
        }
        sized = f", size {key.size}" if key.size else ""
        for count in [key.workers] if key.mode != "sequential" else sorted(many):
            counted = f" x {count:,}" if len(many) > 1 else ""
            row = rows.setdefault(f"{key.full_runtime}{sized}{counted}", {})
            row[str(key.mode)] = cell
    for scenario, rows in by_scenario.items():
        rows = {name: row for name, row in rows.items() if len(row) > 1}
        modes = [mode for mode in MODES if any(mode in row for row in rows.values())]
        if len(modes) < 2:
            continue
        figure, axes = rows_figure(len(rows))
        for place, row in enumerate(rows.values()):
            times = [cell.estimates["elapsed_s"].median for cell in row.values()]
            axes.plot([min(times), max(times)], [place, place], color=FAINT, linewidth=1)
        for mode in modes:
            points = [(n, row[mode]) for n, row in enumerate(rows.values()) if mode in row]
            x = [cell.estimates["elapsed_s"].median for _, cell in points]
            look = look_of(mode) | {"linestyle": "", "markersize": 6}
            axes.plot(x, [place for place, _ in points], label=mode, **look)
        axes.set_yticks(range(len(rows)), list(rows))
        time_on_x(axes, "elapsed")
        legend_of(figure, [axes])
        yield Drawing(
            f"modes-{scenario}",
            f"{scenario}: threads, forks and others",
            "Medians of the elapsed time; logarithmic.",
            figure,
        )


def published_and_measured(found: dict[Key, Cell]) -> Iterator[Drawing]:
    """Ratios of the sources beside ours."""
    for one in ratios(found):
        figure, axes = rows_figure(len(one.published) + len(one.measured))
        names, x = zip(*one.published, *one.measured, strict=True)
        look: dict[str, Any] = {"linestyle": "", "markersize": 6}
        theirs = len(one.published)
        hollow = look | {"markerfacecolor": "none", "color": COLOURS[1]}
        axes.plot(x[:theirs], range(theirs), marker="D", label="published", **hollow)
        look["color"] = COLOURS[0]
        axes.plot(x[theirs:], range(theirs, len(x)), marker="o", label="measured", **look)
        axes.axvline(1, color=FAINT, linewidth=1)
        axes.set_yticks(range(len(names)), names)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(locator(*axes.get_xlim()))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(one.what)
        legend_of(figure, [axes])
        yield Drawing(
            f"published-{one.scenario}",
            f"{one.scenario}: published and measured",
            f"{one.what[0].upper()}{one.what[1:]}; logarithmic. Source: {one.source}.",
            figure,
        )
