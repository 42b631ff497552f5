"""Runs in the interpreter under test, as the text of `-c`: `python -m test`, with each event
written to a file at once, so that it outlives a crash.

Its arguments: the file for the events, one that names the methods wanted, then those of
`python -m test`. CPython 3.8 and later run it. It imports no more than it must: what is tested
should find what it finds without it.
"""

import json
import os
import sys
import unittest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

path = sys.argv[1]
with open(sys.argv[2]) as file:
    chosen = json.load(file)
only, left_out = chosen["only"], set(chosen["left_out"])
# By other names: tests replace those of the modules.
here, dumps, o_open, o_write, o_close = os.getpid(), json.dumps, os.open, os.write, os.close


def note(*fields: object) -> None:
    # Opened and closed for each line: tests count descriptors.
    if os.getpid() == here:
        fd = o_open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        o_write(fd, (dumps(fields) + "\n").encode())
        o_close(fd)


def wrap(name: str, outcome: str) -> None:
    original = getattr(unittest.TestResult, name)

    def method(self: unittest.TestResult, test: "Any", *rest: "Any") -> object:
        said, result = "", outcome
        if name == "addSubTest":
            test, (_, error) = test, rest
            if error is None:
                return original(self, test, *rest)
            said = str(error[1])
            result = "fail" if issubclass(error[0], test.failureException) else "error"
        elif rest:
            said = str(rest[0][1] if isinstance(rest[0], tuple) else rest[0])
        # A subtest is skipped under its own name.
        note(result, getattr(test, "test_case", test).id(), said[-300:])
        return original(self, test, *rest)

    setattr(unittest.TestResult, name, method)


for name, outcome in (
    ("startTest", "start"),
    ("stopTest", "stop"),
    ("addSuccess", "pass"),
    ("addSkip", "skip"),
    ("addFailure", "fail"),
    ("addError", "error"),
    ("addSubTest", ""),
    ("addExpectedFailure", "expected failure"),
    ("addUnexpectedSuccess", "unexpected success"),
):
    wrap(name, outcome)


def runs(test: "Any") -> bool:
    if isinstance(test, unittest.BaseTestSuite):
        return True
    return test.id() not in left_out and (only is None or test.id() in only)


def run(
    self: unittest.TestSuite,
    *args: "Any",
    _run: "Any" = unittest.TestSuite.run,
    **more: "Any",
) -> object:
    self._tests = [test for test in self._tests if runs(test)]
    return _run(self, *args, **more)


unittest.TestSuite.run = run  # type: ignore[method-assign, assignment]
sys.argv = ["-m test", *sys.argv[3:]]
# Not before: it is to meet what was changed above.
from test.libregrtest.main import main  # type: ignore[import-not-found]  # noqa: E402

try:
    main()
except SystemExit as end:
    note("end", "", end.code or 0)
    raise
