"""`deconvoy run`: the program under a policy, in this process."""

import os
import signal
import sys
from typing import NoReturn

import click

from deconvoy import preload, program
from deconvoy.verbs import (
    COMMAND_SETTINGS,
    command_argument,
    exec_children_option,
    policy_option,
)

# Python ignores these; a program must not inherit that.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@click.command(
    context_settings=COMMAND_SETTINGS,
    epilog="Example: deconvoy run -- gunicorn --worker-class gthread app:app",
)
@policy_option("adaptive")
@exec_children_option
@command_argument
def run(policy: str, exec_children: bool, command: tuple[str, ...]) -> NoReturn:
    """Run COMMAND with its GIL under a policy.

    The command takes the place of deconvoy: its exit status, signals and streams are its own. If
    its GIL cannot be served, one line on stderr says why, and it runs as it is.
    """
    preload.check_policy(policy)
    started = program.find(command, os.environ)
    environment = preload.environment(policy, exec_children=exec_children)
    if started.note:
        print(started.note, file=sys.stderr, flush=True)
    if not started.verdict.can_load:
        environment = dict(os.environ)
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(started.path, started.argv, environment)
    except OSError as error:
        raise program.why_not_started(error, started) from None
