"""The graph of a sweep, in a terminal."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
from uniplot import plot_to_string

from deconvoy.history.graph import Graph

# In characters, where nobody says how large a terminal is; and what stands beside the plot.
WIDE, TALL = 100, 24
BESIDE, ABOVE = 16, 9
MOST_WIDE = 150

# Values that differ by more are drawn by their logarithm.
LOG_FROM = 5.0


def plot(graph: Graph) -> str:
    """The metric against the number of the revision in the range, a line where it changed."""
    known = [(row.position, row.metric.median) for row in graph.measured if row.metric is not None]
    at = np.array([position for position, _ in known], dtype=float)
    middles = np.array([middle for _, middle in known])
    size = shutil.get_terminal_size((WIDE, TALL))
    can_log = float(middles.min()) > 0 and float(middles.max()) > LOG_FROM * float(middles.min())
    text = plot_to_string(
        [middles],
        [at],
        title=graph.session.project.metric.text,
        width=max(20, min(size.columns, MOST_WIDE) - BESIDE),
        height=max(8, min(size.lines, TALL) - ABOVE),
        color=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
        x_min=0.0,
        x_max=float(len(graph.rows) - 1),
        y_as_log=can_log,
        x_gridlines=[marked.point.position - 0.5 for marked in graph.changes],
        y_gridlines=[],
    )
    return "\n".join(line.rstrip() for line in text.split("\n"))
