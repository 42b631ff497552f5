"""`deconvoy trace`: the program in a child, its locks written down, and what was found."""

import contextlib
import os
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import click

from deconvoy import preload, program, supervise
from deconvoy.errors import UserError
from deconvoy.output import console, working
from deconvoy.summary import print_summary
from deconvoy.verbs import (
    COMMAND_SETTINGS,
    command_argument,
    exec_children_option,
    policy_option,
)

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SMALLEST, LARGEST = 64 << 10, 64 << 30

# The library takes the folder's name with a file's behind it.
LONGEST_FOLDER_BYTES = 2000


def parse_size(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """A number of bytes, as `64M`.

    Raises:
        UserError: it is none, or out of range.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    if found is None:
        raise UserError(f"{text!r} is not a size; write a number and K, M or G, as in 64M")
    size = int(found[1]) * UNITS[found[2].upper()]
    if not SMALLEST <= size <= LARGEST:
        raise UserError("--size must be from 64K to 64G")
    return size


@click.command(
    context_settings=COMMAND_SETTINGS,
    epilog="Example: deconvoy trace -o app.deconvoy -- gunicorn --worker-class gthread app:app",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The folder for the traces, one file a process; new or empty. "
    "If not given: deconvoy-NAME-DATE.deconvoy.",
)
@policy_option(preload.STOCK)
@click.option(
    "--size",
    callback=parse_size,
    metavar="SIZE",
    help="The most that the events of one process may take, as in 64M; beyond it the oldest go. "
    "Sums and percentiles are of the whole run. The file is made that long at once, but takes only "
    "the room of what is in it (`du`, not `ls -l`). [default: 64M]",
)
@click.option("--quiet", is_flag=True, help="No summary.")
@exec_children_option
@command_argument
def trace(
    output: Path | None,
    policy: str,
    size: int | None,
    quiet: bool,
    exec_children: bool,
    command: tuple[str, ...],
) -> NoReturn:
    """Run COMMAND, write down who holds its GIL and who waits, and say what was found.

    The summary goes to stderr; `deconvoy report` says more. Streams, signals and exit status are
    the command's own.
    """
    preload.check_policy(policy)
    started = program.find(command, os.environ)
    wanted = output or default_folder(started.name)
    is_ours = not wanted.exists()
    folder = make_folder(wanted)
    environment = preload.environment(
        policy, trace=folder, trace_bytes=size, exec_children=exec_children
    )
    if started.note:
        print(started.note, file=sys.stderr, flush=True)
    if not started.verdict.can_load:
        environment = dict(os.environ)
    try:
        status = supervise.run(started, environment)
    except UserError:
        if is_ours:
            folder.rmdir()
        raise
    if not quiet and started.verdict.why_not is None:
        with working("reading the trace"):
            print_summary(console(stderr=True), folder)
    if is_ours and started.verdict.why_not is not None:
        # Nothing was traced, and nothing will be: of another program nobody knows what it has left
        # running. `rmdir` takes only what is empty.
        with contextlib.suppress(OSError):
            folder.rmdir()
    supervise.end_as(status)


def default_folder(name: str) -> Path:
    safe = re.sub(r"[^\w.+-]", "_", name)
    return Path(f"deconvoy-{safe}-{datetime.now():%Y%m%d-%H%M%S-%f}.deconvoy")


def make_folder(folder: Path) -> Path:
    """Make the folder, and return its absolute path.

    Raises:
        UserError: it cannot be made, or there is something in it.
    """
    path = folder.absolute()
    if len(os.fsencode(path)) > LONGEST_FOLDER_BYTES:
        raise UserError(f"the folder's path is longer than {LONGEST_FOLDER_BYTES} bytes")
    try:
        path.mkdir(exist_ok=True)
        if any(path.iterdir()):
            raise UserError(f"{folder} is not empty; traces go to a new or an empty folder")
    except FileExistsError:
        raise UserError(f"{folder} is a file; traces go to a folder") from None
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {folder}: Permission denied")
    return path
