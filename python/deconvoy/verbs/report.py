"""`deconvoy report`: what a trace says, for a person or as JSON."""

import json
import sys
from pathlib import Path

import click

from deconvoy.output import complain, console, working
from deconvoy.summary import print_report, unmatched
from deconvoy.traces import find_traces, load_all


@click.command(epilog="Example: deconvoy report app.deconvoy --process 4711")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")
@click.option("--process", type=int, metavar="PID", help="Only this process.")
def report(path: Path, as_json: bool, process: int | None) -> None:
    """Say who held the GIL and who waited, for how long, and what is wrong with that.

    PATH is a trace file or a folder of them; the findings come last, the worst first. Many threads
    whose names differ in digits only are one row; --json has each.
    """
    traces = find_traces(path, process)
    with working("reading the trace"):
        loaded, unreadable = load_all(traces)
    if as_json and loaded:
        rows = [{"path": str(trace.path), **report} for trace, report in loaded]
        data = {"version": 1, "processes": rows, "unreadable": unreadable}
        click.echo(json.dumps(data, indent=1))
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
