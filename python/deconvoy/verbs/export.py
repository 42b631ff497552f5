"""`deconvoy export`: a trace for another program's viewer."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from deconvoy._native import TraceError, export_perfetto, export_trace_event
from deconvoy.errors import UserError
from deconvoy.output import working
from deconvoy.traces import find_traces

FORMATS: dict[str, Callable[[Path, Path], None]] = {
    "perfetto": export_perfetto,
    "trace-event": export_trace_event,
}
ENDINGS = {".pftrace": "perfetto", ".perfetto-trace": "perfetto", ".json": "trace-event"}


@click.command(epilog="Example: deconvoy export app.deconvoy -o app.pftrace")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write."
)
@click.option(
    "--format",
    "name",
    type=click.Choice(list(FORMATS)),
    help="As the file's ending says, if not given: .pftrace or .json.",
)
@click.option("--process", type=int, help="The process, if the folder has several.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def export(path: Path, output: Path, name: str | None, process: int | None, force: bool) -> None:
    """Write the trace at PATH, a file or a folder, for a viewer.

    perfetto: for ui.perfetto.dev, of any size. trace-event: JSON for chrome://tracing and the
    like, for small traces.
    """
    name = name or ENDINGS.get(output.suffix)
    if name is None:
        raise UserError(f"{output}: end it in .pftrace or .json, or choose with --format")
    found = find_traces(path, process)
    if len(found) > 1:
        numbers = ", ".join(str(trace.pid) for trace in found)
        raise UserError(f"{path} has {len(found)} processes; choose with --process: {numbers}")
    if output.exists() and not force:
        raise UserError(f"{output} exists; --force replaces it")
    if output.is_dir():
        raise UserError(f"{output} is a folder")
    write(found[0].path, output, FORMATS[name])


def write(trace: Path, output: Path, exporter: Callable[[Path, Path], None]) -> None:
    """Export into a new file beside `output`, and put it in place once it is whole."""
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".deconvoy-") as folder:
            fresh = Path(folder, output.name)
            with working(f"writing {output}"):
                exporter(trace, fresh)
            fresh.replace(output)
    except TraceError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror}") from None
