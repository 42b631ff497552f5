"""`deconvoy report`: what a trace says, for a person or as JSON."""

import json
from pathlib import Path

import click

from deconvoy.output import console, working
from deconvoy.summary import print_report
from deconvoy.traces import find_traces, load


@click.command(epilog="Example: deconvoy report app.deconvoy --process 4711")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")
@click.option("--process", type=int, metavar="PID", help="Only this process.")
def report(path: Path, as_json: bool, process: int | None) -> None:
    """Say who held the GIL and who waited, for how long, and what is wrong with that.

    PATH is a trace file or a folder of them; the findings come last, the worst first.
    """
    traces = find_traces(path, process)
    with working("reading the trace"):
        reports = [load(trace.path) for trace in traces]
    if as_json:
        rows = [
            {"path": str(trace.path), **report}
            for trace, report in zip(traces, reports, strict=True)
        ]
        click.echo(json.dumps({"version": 1, "processes": rows}, indent=1))
        return
    out = console()
    for number, one in enumerate(reports):
        if number:
            out.print()
        print_report(out, one)
