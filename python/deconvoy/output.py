"""Tables, numbers with their units, and progress, the same in every verb."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TextIO, cast

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

# Wide enough for any table: what is piped is cut by whoever reads it.
PIPED_WIDTH = 100_000

# Of the first column of a table, when there is little room; and what `table` puts between two.
LEAST_WIDTH = 16
BETWEEN_COLUMNS = 2

# Nobody waits this long without a sign of life.
PROGRESS_AFTER_S = 2.0

UNITS_NS = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")]


def console(*, stderr: bool = False) -> Console:
    """Where to print. Plain and unwrapped unless it is a terminal; bare text with NO_COLOR."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        if os.environ.get("NO_COLOR"):
            return Console(stderr=stderr, highlight=False, color_system=None)
        return Console(stderr=stderr, highlight=False)
    trimmed = cast(IO[str], Trimmed(stream))
    return Console(file=trimmed, highlight=False, width=PIPED_WIDTH, no_color=True)


@dataclass(frozen=True)
class Trimmed:
    """A stream without the spaces that end the lines of a table."""

    stream: TextIO

    @property
    def encoding(self) -> str:
        return self.stream.encoding

    def write(self, text: str) -> int:
        return self.stream.write("\n".join(line.rstrip(" ") for line in text.split("\n")))

    def flush(self) -> None:
        self.stream.flush()


def bar(where: Console) -> Progress:
    """A bar of how far many equal parts are, gone when they are done; nothing but on a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=where,
        transient=True,
        disable=not where.is_terminal,
    )


def complain(message: str) -> None:
    """Say what is wrong, in one line on stderr."""
    line = " ".join(message.split())
    print(f"deconvoy: {line}", file=sys.stderr)


def table(*columns: str, title: str | None = None, numbers: tuple[str, ...] = ()) -> Table:
    """An empty table; the columns in `numbers` are aligned to the right."""
    made = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in columns:
        is_number = column in numbers
        justify: JustifyMethod = "right" if is_number else "left"
        # Folded where it must be: a name that is cut cannot be copied.
        made.add_column(column, justify=justify, no_wrap=is_number, overflow="fold")
    return made


def fitting(rows: Sequence[Mapping[str, str]], width: int, dispensable: Sequence[str]) -> list[str]:
    """The columns of `rows` that a table of this width has room for: all but the first few of
    `dispensable`, as few as possible. The first column can be folded to `LEAST_WIDTH`."""
    columns = list(rows[0]) if rows else []

    def wide(column: str) -> int:
        widest = max(cell_len(text) for text in (column, *(row[column] for row in rows)))
        return min(widest, LEAST_WIDTH) if column == columns[0] else widest

    droppable = [column for column in dispensable if column in columns]
    while droppable and sum(wide(column) + BETWEEN_COLUMNS for column in columns) > width:
        columns.remove(droppable.pop(0))
    return columns


def plain(text: str) -> str:
    """Text from elsewhere, safe to print with markup: control characters are shown."""
    return escape("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


def time_text(ns: float) -> str:
    """A length of time with three digits and its unit: `5.12 ms`."""
    for size, unit in UNITS_NS:
        if ns >= size:
            value = ns / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return "0"


def counted(count: int, what: str) -> str:
    """So many of something: `1 run`, `2 runs`."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say `what` is going on, on a terminal, once it has taken longer than a moment."""
    if not sys.stderr.isatty():
        yield
        return
    status = Console(stderr=True).status(what)
    timer = threading.Timer(PROGRESS_AFTER_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def short_policy(policy: str) -> str:
    """A policy with times that can be read."""
    name, _, rest = policy.partition(":")
    parts = []
    for part in rest.split(",") if rest else []:
        key, _, value = part.partition("=")
        if value.endswith("ns") and value[:-2].isdecimal():
            value = time_text(int(value[:-2])).replace(" ", "")
        parts.append(f"{key}={value}" if value else key)
    return f"{name}:{','.join(parts)}" if parts else name
