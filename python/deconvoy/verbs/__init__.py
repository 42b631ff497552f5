"""The verbs of the command line, a file each, and the options that several share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from deconvoy.preload import STOCK

F = TypeVar("F", bound=Callable[..., Any])

# Options end where the command begins, so that its own options need no `--`.
COMMAND_SETTINGS = {"allow_interspersed_args": False}


class Counts(click.ParamType[tuple[int, ...]]):
    """A list of counts: `0,1,2`."""

    name = "N,N,..."

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            counts = tuple(int(part) for part in value.split(","))
        except ValueError:
            counts = (self.least - 1,)
        if any(not self.least <= count <= self.most for count in counts):
            limits = f"from {self.least} to {self.most}"
            self.fail(f"{value!r} is not a list of counts {limits}, like 1,2,4")
        return counts


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
