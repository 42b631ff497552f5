"""The graph of a sweep as one page that needs nothing else."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from deconvoy import __version__
from deconvoy.bench.drawings import svg_of
from deconvoy.bench.pages import in_colours
from deconvoy.bench.pages import part as part_of_result
from deconvoy.history.drawn import Drawn
from deconvoy.history.graph import Graph, Marked
from deconvoy.history.shown import (
    Row,
    beside_the_ratio,
    date,
    how_it_changed,
    part_name,
    span_lines,
    sure,
    with_interval,
)
from deconvoy.output import counted


def render(graph: Graph, drawn: Drawn) -> str:
    """The page."""
    project = graph.session.project
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    builds = len({row.key for row in graph.measured})
    about = (
        f"{graph.session.repository.told}, {counted(len(graph.rows), 'revision')}, "
        f"{counted(builds, 'build')} measured"
    )
    return environment.from_string(part("history.html")).render(
        title=f"deconvoy history: {project.metric.text}",
        about=about,
        changes=[told_of(graph, marked) for marked in graph.changes],
        nothing=f"none of {100 * project.least:g} % and more is seen",
        notes=[alarm_note(graph)],
        spans=span_lines(graph.chain, graph.spans),
        svg=in_colours(svg_of(drawn.figure), f"{project.metric.text} against revisions"),
        data=Markup(json_for_page(data_of(graph, drawn))),
        footer=f"deconvoy {__version__}; {project.benchmark.command}",
        style=Markup(part_of_result("result.css") + part("history.css")),
        script=Markup(part("history.js")),
    )


def part(name: str) -> str:
    return resources.files("deconvoy").joinpath("data", "history", name).read_text()


def json_for_page(data: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")


def alarm_note(graph: Graph) -> str:
    """How often there is a change by chance."""
    if graph.alarms != graph.alarms:
        return "Too few builds were measured to tell how often a change is seen by chance."
    return (
        f"Where the same numbers are shuffled, a change is seen in {100 * graph.alarms:.0f} % of "
        f"shuffles."
    )


def told_of(graph: Graph, marked: Marked) -> dict[str, Any]:
    """A change, in words."""
    point, row = marked.point, marked.row
    first, last = graph.rows[point.first].revision, graph.rows[point.last].revision
    where = (
        "and no other"
        if point.first == point.last
        else f"with 95 %, one from {first.short} to {last.short}"
    )
    return {
        "id": row.revision.short,
        "text": how_it_changed(graph.session.project, marked.change),
        "subject": row.revision.subject,
        "interval": f"{sure(point.probability)} sure that there is a change; {where}",
        "beside": [*inside(graph, marked), *beside(graph, marked)],
    }


def inside(graph: Graph, marked: Marked) -> list[str]:
    if not marked.row.revision.is_merge:
        return []
    return [
        "it is a merge: deconvoy history find looks for the revision in the branch that it brought"
    ]


def beside(graph: Graph, marked: Marked) -> list[str]:
    """What became of each number, from the build before to the one that changed it."""
    before = [row for row in graph.measured if row.position < marked.point.position]
    if not before:
        return []
    return beside_the_ratio(graph.session.project, before[-1].parts, marked.row.parts)


def data_of(graph: Graph, drawn: Drawn) -> dict[str, Any]:
    project = graph.session.project
    columns = list(dict.fromkeys(part for row in graph.measured for part in row.parts))
    changed = {one.row.position: how_it_changed(project, one.change) for one in graph.changes}
    rows = [data_of_row(row, float(row.position), columns) for row in graph.rows]
    for row in rows:
        row["change"] = changed.get(int(row["x"]), "")
    for branch in graph.branches:
        pairs = zip(branch.rows, branch.places, strict=True)
        rows += [data_of_row(row, place, columns) | {"change": ""} for row, place in pairs]
    rows.sort(key=lambda row: float(row["x"]))
    return {
        "columns": [project.metric.text, *(part_name(project, one) for one in columns)],
        "versions": any(row.version for row in graph.rows),
        "place": {
            name: getattr(drawn, name)
            for name in ("left", "right", "first", "last", "top", "bottom")
        },
        "rows": rows,
    }


def data_of_row(row: Row, place: float, columns: list[tuple[str, int]]) -> dict[str, Any]:
    cells: list[str] = []
    if row.metric is not None:
        cells = [with_interval(row.metric), *(with_interval(row.parts[one]) for one in columns)]
    return {
        "x": place,
        "id": row.revision.short,
        "date": date(row.revision.when_s),
        "version": row.version,
        "author": row.revision.author,
        "subject": row.revision.subject,
        "failure": row.failure,
        "cells": cells or [""] * (len(columns) + 1),
    }
