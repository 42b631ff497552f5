"""A result as one page that needs nothing else: tables that can be sorted, and plots."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from deconvoy import __version__
from deconvoy.bench.accounts import all_tables, grid, plain
from deconvoy.bench.drawings import COLOURS, FAINT, INK, LINE, Drawing, drawings
from deconvoy.bench.results import Result
from deconvoy.bench.series import doubts_of

# What the page calls the colours of a plot.
VARIABLES = {INK: "--ink", FAINT: "--faint", LINE: "--line"} | {
    colour: f"--c{place}" for place, colour in enumerate(COLOURS)
}


@dataclass
class Section:
    """A heading with a plot or a table; what it means is below."""

    name: str
    title: str
    svg: Markup | None = None
    heads: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    numbers: list[bool] = field(default_factory=list)
    key: str = ""


def render(result: Result) -> str:
    """The page of a result."""
    sections = [*plots(result), *listed(result)]
    scenarios = ", ".join(dict.fromkeys(run.scenario for run in result.runs))
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(result.created_unix_s))
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(part("result.html")).render(
        title=f"deconvoy bench: {scenarios}",
        about=f"{about(result)}; {len(result.runs)} runs, {when}",
        notes=doubts_of(result),
        sections=sections,
        footer=f"deconvoy {__version__}; the command: {' '.join(map(str, result.command))}",
        style=Markup(part("result.css")),
        script=Markup(part("result.js")),
    )


def part(name: str) -> str:
    return resources.files("deconvoy").joinpath("data", "result", name).read_text()


def about(result: Result) -> str:
    """The machine, in a line."""
    machine = result.machine
    memory = machine.get("memory_bytes")
    parts = [
        str(machine.get("processor", "an unknown machine")),
        f"{machine.get('cores_available')} cores" if "cores_available" in machine else "",
        f"{memory / 2**30:.0f} GiB" if isinstance(memory, int | float) else "",
        f"Linux {machine['kernel']}" if "kernel" in machine else "",
        f"and {len(result.machines)} machines of a cluster" if result.machines else "",
    ]
    return ", ".join(filter(None, parts))


def plots(result: Result) -> list[Section]:
    return [
        Section(one.name, one.title, svg=in_page(one, place), key=one.caption)
        for place, one in enumerate(drawings(result))
    ]


def in_page(drawing: Drawing, place: int) -> Markup:
    """A picture in the colours of the page, its names its own among those of the others."""
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>p{place}-", drawing.svg())
    return in_colours(text, drawing.title)


def in_colours(svg: str, title: str) -> Markup:
    """A picture in the colours of the page."""
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    label = f'<svg role="img" aria-label="{Markup.escape(title)}" '
    return Markup(svg.replace("<svg ", label, 1))


def listed(result: Result) -> list[Section]:
    """The tables, with those that were published, and all that was measured."""
    made = []
    for number, (table, key) in enumerate(all_tables(result)):
        heads, rows, numbers = grid(table)
        title = plain(table.title or "")
        made.append(Section(f"table-{number}", title, None, heads, rows, numbers, key))
    return made
