"""`deconvoy report`: what a trace says, for a person or as JSON."""

import json
import sys
from pathlib import Path

import click

from deconvoy import page
from deconvoy.files import check_new
from deconvoy.output import complain, console, plain, working
from deconvoy.summary import print_report, unmatched
from deconvoy.traces import find_traces, load_all


@click.command(epilog="Example: deconvoy report app.deconvoy --process 4711")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")
@click.option(
    "--html",
    "page_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write it as a page with a timeline that can be zoomed; it needs no network.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--process", type=int, metavar="PID", help="Only this process.")
def report(
    path: Path, as_json: bool, page_path: Path | None, force: bool, process: int | None
) -> None:
    """Say who held the GIL and who waited, for how long, and what is wrong with that.

    PATH is a trace file or a folder of them; the findings come last, the worst first. Many threads
    whose names differ in digits only are one row; --json has each.
    """
    if page_path is not None:
        check_new(page_path, force)
    traces = find_traces(path, process)
    with working("reading the trace"):
        loaded, unreadable = load_all(traces)
    if as_json and loaded:
        rows = [{"path": str(trace.path), **report} for trace, report in loaded]
        data = {"version": 1, "processes": rows, "unreadable": unreadable}
        click.echo(json.dumps(data, indent=1))
    elif loaded and page_path is not None:
        with working("drawing the page"):
            page.write(page_path, page.render([(trace.path, report) for trace, report in loaded]))
        console().print(f"the page: {plain(str(page_path))}", soft_wrap=True)
    elif loaded:
        out = console()
        for number, (_, report) in enumerate(loaded):
            if number:
                out.print()
            print_report(out, report)
        for line in unmatched([report for _, report in loaded]):
            out.print(f"note: {line}")
    if unreadable:
        for why in unreadable:
            complain(why)
        sys.exit(2)
