"""What is told on stderr."""

import sys


class UserError(Exception):
    """What went wrong, and its mend if it has one, in one line."""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
