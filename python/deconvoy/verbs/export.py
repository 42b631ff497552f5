"""`deconvoy export`: a trace for another program's viewer."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from deconvoy._native import TraceError, export_perfetto, export_trace_event
from deconvoy.errors import UserError
from deconvoy.files import check_new
from deconvoy.output import complain, working
from deconvoy.traces import find_traces

Exporter = Callable[[Sequence[Path], Path], list[str]]

FORMATS: dict[str, Exporter] = {
    "perfetto": export_perfetto,
    "trace-event": export_trace_event,
}
ENDINGS = {".pftrace": "perfetto", ".perfetto-trace": "perfetto", ".json": "trace-event"}
VIEWERS = {"perfetto": "https://ui.perfetto.dev", "trace-event": "chrome://tracing"}

STDOUT = Path("-")


@click.command(epilog="Example: deconvoy export app.deconvoy -o app.pftrace")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The file to write; - for standard output.",
)
@click.option(
    "--format",
    "name",
    type=click.Choice(list(FORMATS)),
    help="As the file's ending says, if not given: .pftrace or .json.",
)
@click.option("--process", type=int, metavar="PID", help="Only this process.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def export(path: Path, output: Path, name: str | None, process: int | None, force: bool) -> None:
    """Write the trace at PATH, a file or a folder, for a viewer: all its processes on one timeline.

    perfetto: for ui.perfetto.dev, of any size. trace-event: JSON for chrome://tracing and the
    like, for small traces.
    """
    name = name or ENDINGS.get(output.suffix)
    if name is None and output == STDOUT:
        raise UserError("for standard output say which: --format perfetto or trace-event")
    if name is None:
        raise UserError(f"{output}: end it in .pftrace or .json, or choose with --format")
    traces = [trace.path for trace in find_traces(path, process)]
    if output == STDOUT:
        if sys.stdout.isatty():
            raise UserError("a trace is no text for a terminal: name a file, or pipe it on")
        unreadable = to_stdout(traces, FORMATS[name])
    else:
        check_new(output, force)
        # A link stays a link.
        unreadable = to_file(traces, output.resolve(), FORMATS[name])
        count = len(traces) - len(unreadable)
        of = "1 process" if count == 1 else f"{count} processes"
        print(f"deconvoy: {output}: {of}; open it in {VIEWERS[name]}", file=sys.stderr)
    if unreadable:
        for why in unreadable:
            complain(why)
        sys.exit(2)


def to_file(traces: Sequence[Path], output: Path, exporter: Exporter) -> list[str]:
    """Export into a new file beside `output`, and put it in place once it is whole. Returns why
    some of the traces cannot be read."""
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".deconvoy-") as folder:
            fresh = Path(folder, output.name)
            with working(f"writing {output}"):
                unreadable = exporter(traces, fresh)
            fresh.replace(output)
            return unreadable
    except TraceError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror}") from None


def to_stdout(traces: Sequence[Path], exporter: Exporter) -> list[str]:
    """Export into a temporary file, and copy it once it is whole. Returns as `to_file` does."""
    try:
        with tempfile.TemporaryDirectory(prefix="deconvoy-") as folder, working("exporting"):
            fresh = Path(folder, "trace")
            unreadable = exporter(traces, fresh)
            with fresh.open("rb") as written:
                shutil.copyfileobj(written, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return unreadable
    except TraceError as error:
        raise UserError(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"cannot write to standard output: {error.strerror}") from None
