"""`deconvoy doctor`: what this machine has, and what can be served, tried and not guessed."""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from deconvoy import __version__, calibration, preload, program
from deconvoy.bench import machine
from deconvoy.errors import UserError
from deconvoy.interpreters import Interpreter, find_interpreters
from deconvoy.output import console, plain, table, time_text, working
from deconvoy.traces import find_traces, load
from deconvoy.verbs import COMMAND_SETTINGS

POLICY = "adaptive"

# Each thread goes on when the other one has had its turn, and computes until then: nobody gets on
# but by waiting for the lock.
TWO_THREADS = """
import threading
turns = [1]
def take_turns(me):
    while len(turns) < 10:
        if turns[-1] != me:
            turns.append(me)
threads = [threading.Thread(target=take_turns, args=(me,)) for me in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""

# Far beyond what it takes: the program hangs.
HANGS_AFTER_S = 60


@dataclass(frozen=True)
class Checked:
    """An interpreter and what became of a program of two threads in it."""

    interpreter: Interpreter
    is_served: bool
    why_not: str | None


@click.command(
    context_settings=COMMAND_SETTINGS,
    epilog="Example: deconvoy doctor -- gunicorn app:app",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for a program.")
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure what wake-ups and the like take here, for simulations, and keep that.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
def doctor(as_json: bool, calibrate: bool, command: tuple[str, ...]) -> None:
    """Check this machine, its CPythons, and COMMAND if there is one.

    Each interpreter runs a program of two threads under the library, and counts as served if its
    trace shows them. Exit status 1: the library cannot be loaded, or COMMAND not be served.
    """
    if calibrate:
        if command:
            raise UserError("--calibrate takes no command: it measures the machine")
        show_costs(as_json)
        return
    asked = program.find(command, os.environ) if command else None
    with working("trying each CPython"):
        here = machine.describe()
        library = check_library()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            checked = list(pool.map(check, find_interpreters()))
    why_not = asked.verdict.why_not if asked is not None else None
    if as_json:
        click.echo(json.dumps(as_data(here, library, checked, asked), indent=1))
    else:
        out = console()
        print_machine(out, here, library)
        print_interpreters(out, checked)
        if asked is not None:
            may = "nothing speaks against it"
            if not (asked.verdict.is_python or asked.verdict.is_ruby):
                may = "neither a CPython nor a Ruby that can be seen; one that it starts is served"
            said = plain(why_not or may)
            out.print(f"{plain(' '.join(asked.argv))}: {said}")
    if library is not None or why_not is not None:
        sys.exit(1)


def check_library() -> str | None:
    """Why the library cannot be loaded; None: it can."""
    try:
        environment = preload.environment(preload.STOCK, trace=Path(os.devnull))
    except UserError as error:
        return str(error)
    command = [sys.executable, "-c", "print(open('/proc/self/maps').read())"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if preload.library().name not in done.stdout:
        said = (done.stderr.splitlines() or ["the loader did not say why"])[0]
        return f"{sys.executable} runs without it: {said}"
    return None


def check(interpreter: Interpreter) -> Checked:
    """Run two threads under the library and look at what it wrote."""
    if interpreter.why_not is not None:
        return Checked(interpreter, False, interpreter.why_not)
    why_not = try_out(interpreter.path)
    return Checked(interpreter, why_not is None, why_not)


def try_out(python: Path) -> str | None:
    with tempfile.TemporaryDirectory(prefix="deconvoy-") as folder:
        environment = preload.environment(POLICY, trace=Path(folder))
        try:
            done = subprocess.run(
                [python, "-c", TWO_THREADS],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=HANGS_AFTER_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "a program of two threads hangs under the library: please report it"
        except OSError as error:
            return f"does not start: {error.strerror}"
        if done.returncode:
            said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            return f"a program of two threads fails: {said}"
        if not any(Path(folder).iterdir()):
            return (done.stderr.splitlines() or ["the library found no GIL"])[0]
        try:
            report = load(find_traces(Path(folder))[0].path)
        except UserError as error:
            return f"its trace cannot be read: {error}"
        waits = sum(thread["waits"] for thread in report["threads"])
        return None if waits else "two threads ran, but the library saw none of them wait"


def show_costs(as_json: bool) -> None:
    """Measures what this machine's operations take, keeps it, and prints it."""
    progress = console(stderr=True)
    here = machine.describe()
    with progress.status("measuring") as status:
        measured = calibration.measure(lambda what: status.update(f"measuring {what}"), here)
    if as_json:
        click.echo(json.dumps({"path": str(calibration.path()), "costs_ns": measured}, indent=1))
        return
    out = console()
    listing = table("cost", "median", "least", "most", numbers=("median", "least", "most"))
    for name, values in measured.items():
        spread = (min(values), max(values)) if len(values) > 1 else ()
        shown = (statistics.median(values), *spread)
        listing.add_row(name.removesuffix("_ns").replace("_", " "), *map(time_text, shown))
    out.print(listing)
    for doubt in machine.doubts(here):
        out.print(f"note: {doubt}")
    out.print(f"kept for simulations: {plain(str(calibration.path()))}", soft_wrap=True)


def as_data(
    here: dict[str, Any],
    library: str | None,
    checked: list[Checked],
    asked: program.Program | None,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "version": 1,
        "deconvoy": __version__,
        "machine": here,
        "doubts": machine.doubts(here, 1),
        "library": {"is_loadable": library is None, "why_not": library},
        "interpreters": [
            {
                **dataclasses.asdict(one.interpreter),
                "name": f"cpython{one.interpreter.short_version}",
                "path": str(one.interpreter.path),
                "is_served": one.is_served,
                "why_not": one.why_not,
            }
            for one in checked
        ],
    }
    if asked is not None:
        found["command"] = {
            "argv": asked.argv,
            "path": asked.path,
            "why_not": asked.verdict.why_not,
        }
    return found


def print_machine(out: Console, here: dict[str, Any], library: str | None) -> None:
    facts = table("machine", "")
    facts.add_row("processor", f"{plain(here['processor'])} ({here['architecture']})")
    facts.add_row("cores", f"{here['cores_available']} of {here['cores']} for this process")
    facts.add_row("kernel", f"Linux {plain(here['kernel'])}, {plain(here['libc'])}")
    facts.add_row("governor", here["governor"] or "not shown by the kernel")
    facts.add_row("virtual machine", "yes" if here["virtual_machine"] else "no")
    facts.add_row("load", f"{here['load_at_start'][0]:.2f}")
    facts.add_row("preloaded library", plain(library or "loads"))
    out.print(facts)
    for doubt in machine.doubts(here, 1):
        out.print(f"note: {plain(doubt)}")


def print_interpreters(out: Console, checked: list[Checked]) -> None:
    if not checked:
        out.print("no CPython was found")
        return
    listing = table("CPython", "build", "found in", "served", "path")
    for one in checked:
        found = one.interpreter
        build = "free-threaded" if found.is_free_threaded else "GIL"
        linked = "shared" if found.is_shared else "static"
        verdict = "yes" if one.is_served else f"no: {plain(one.why_not or '')}"
        path = plain(str(found.path))
        listing.add_row(found.version, f"{build}, {linked}", found.source, verdict, path)
    out.print(listing)
