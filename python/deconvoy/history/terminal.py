"""The graph of a sweep, in a terminal."""

from __future__ import annotations

import math
import os
import shutil
import sys

import numpy as np
from uniplot import plot_to_string

from deconvoy.history.graph import LOG_FROM, Graph

# In characters, where nobody says how large a terminal is; and what stands beside the plot.
WIDE, TALL = 100, 24
BESIDE, ABOVE = 16, 9
MOST_WIDE = 150
MOST_VERSIONS = 10


def plots(graph: Graph) -> str:
    """The metric against the number of the revision in the range, a line where it changed; then
    each number that is read, with each number of threads; and what the numbers are."""
    project = graph.session.project
    counts = project.benchmark.threads
    known = [(row.position, row.metric.median) for row in graph.measured if row.metric is not None]
    parts = [plot(graph, project.metric.text, {"": known})]
    for name in project.readers:
        several = {
            f"{count} thread" + ("" if count == 1 else "s"): [
                (row.position, row.parts[name, count].median)
                for row in graph.measured
                if (name, count) in row.parts
            ]
            for count in counts
        }
        parts.append(plot(graph, name, several))
    ends = [graph.rows[0], graph.rows[-1]]
    parts.append(" to ".join(f"{row.position}: {row.revision.short}" for row in ends))
    if versions := graph.versions:
        some = versions[:: math.ceil(len(versions) / MOST_VERSIONS)]
        rest = ", …" if len(some) < len(versions) else ""
        parts.append("versions: " + ", ".join(f"{name} from {at}" for at, name in some) + rest)
    return "\n".join(parts)


def plot(graph: Graph, title: str, series: dict[str, list[tuple[int, float]]]) -> str:
    """Medians of one number; a line where the metric changed."""
    at = [np.array([position for position, _ in one], dtype=float) for one in series.values()]
    middles = [np.array([middle for _, middle in one]) for one in series.values()]
    size = shutil.get_terminal_size((WIDE, TALL))
    low, high = (float(how(np.concatenate(middles))) for how in (np.min, np.max))
    can_log = low > 0 and high > LOG_FROM * low
    in_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    # Without colours a series is told by its sign.
    signs = "block" if in_colour or len(series) == 1 else "ascii"
    text = plot_to_string(
        middles,
        at,
        title=title,
        legend_labels=list(series) if len(series) > 1 else None,
        width=max(20, min(size.columns, MOST_WIDE) - BESIDE),
        height=max(8, min(size.lines, TALL) - ABOVE),
        color=in_colour,
        character_set=signs,
        x_min=0.0,
        x_max=float(len(graph.rows) - 1),
        y_as_log=can_log,
        x_gridlines=[marked.point.position - 0.5 for marked in graph.changes],
        y_gridlines=[],
    )
    return "\n".join(line.rstrip() for line in text.split("\n"))
