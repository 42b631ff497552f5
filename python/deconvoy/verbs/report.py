"""`deconvoy report`: what a trace or a result says, for a person, as JSON, or drawn."""

import json
import sys
from pathlib import Path

import click

from deconvoy import page
from deconvoy.errors import UserError
from deconvoy.files import check_new
from deconvoy.output import complain, console, plain, working
from deconvoy.summary import print_report, unmatched
from deconvoy.traces import find_traces, load_all

EXAMPLES = """\b
Examples:
  deconvoy report app.deconvoy --process 4711
  deconvoy report app.deconvoy --html app.html
  deconvoy report deconvoy-bench-countdown.jsonl --html countdown.html --svg plots"""

# What is written in place of what is printed, and of what.
FILE = click.Path(path_type=Path)


@click.command(epilog=EXAMPLES)
@click.argument("path", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")
@click.option(
    "--html",
    "page_path",
    type=FILE,
    metavar="FILE",
    help="Write it as a page that needs no network: of a trace with a timeline that can be "
    "zoomed, of a result with its plots.",
)
@click.option("--markdown", type=FILE, metavar="FILE", help="Write the tables of a result.")
@click.option("--csv", "csv_path", type=FILE, metavar="FILE", help="Write all medians of a result.")
@click.option("--svg", type=FILE, metavar="FOLDER", help="Write the plots of a result there.")
@click.option("--png", type=FILE, metavar="FOLDER", help="The same as pictures of points.")
@click.option("--force", is_flag=True, help="Replace FILE, or the plots in FOLDER, if they exist.")
@click.option("--process", type=int, metavar="PID", help="Of traces: only this process.")
def report(
    path: Path,
    as_json: bool,
    page_path: Path | None,
    markdown: Path | None,
    csv_path: Path | None,
    svg: Path | None,
    png: Path | None,
    force: bool,
    process: int | None,
) -> None:
    """Say what a trace or a result of the bench says.

    PATH is a trace file or a folder of them: who held the GIL and who waited, for how long, and
    what is wrong with that; the findings come last, the worst first. Many threads whose names
    differ in digits only are one row; --json has each.

    Or PATH is a result of deconvoy bench, or a folder of them, taken as one: its tables, or with
    --html, --markdown, --csv, --svg and --png what they are for.
    """
    only_of_results = [markdown, csv_path, svg, png]
    if is_of_bench(path):
        from deconvoy.bench.reporting import Outputs, report_result

        if process is not None:
            raise UserError(f"{path} is a result of the bench: --process is of traces")
        report_result(path, Outputs(page_path, markdown, csv_path, svg, png), force, as_json)
        return
    if any(one is not None for one in only_of_results):
        raise UserError(f"{path} is no result of the bench: only --html and --json are of traces")
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


def is_of_bench(path: Path) -> bool:
    """Whether PATH is a result, or a folder of results.

    Raises UserError when it cannot be read, or has both results and traces.
    """
    try:
        from deconvoy.bench.results import SUFFIX
        from deconvoy.bench.store import is_result, results_in
    except ImportError:
        return False
    if not path.is_dir():
        if path.suffix == SUFFIX and path.exists() and not is_result(path):
            raise UserError(f"{path}: no result of deconvoy bench, or damaged")
        return is_result(path)
    found = results_in(path)
    if found and any(path.glob("*.trace")):
        raise UserError(f"{path} has results and traces: name a file, {found[0]} for one")
    return bool(found)
