"""The verbs of the command line, a file each, and the options that several share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from deconvoy.preload import STOCK

F = TypeVar("F", bound=Callable[..., Any])

# Options end where the command begins, so that its own options need no `--`.
COMMAND_SETTINGS = {"allow_interspersed_args": False}


def command_argument(function: F) -> F:
    argument = click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND…")
    return argument(function)


def policy_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--policy",
        default=default,
        show_default=True,
        metavar="POLICY",
        help=f"A policy with its options, or `{STOCK}`: CPython's own; see `deconvoy policies`.",
    )


def exec_children_option(function: F) -> F:
    option = click.option(
        "--exec-children/--no-exec-children",
        default=True,
        show_default=True,
        help="Whether programs that a served Python program executes are served, too. "
        "Forked children always are.",
    )
    return option(function)
