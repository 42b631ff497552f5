"""Tables on terminals of any width, and without colour."""

import sys

import pytest
from deconvoy.output import console, fitting
from hypothesis import given
from hypothesis import strategies as st

COLUMNS = ("thread", "id", "held", "waits")
ROWS = [
    {"thread": "Thread-1 (process_request_thread)", "id": "9538", "held": "1.0 %", "waits": "12"},
    {"thread": "compute", "id": "9539", "held": "100.0 %", "waits": "3"},
]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (200, COLUMNS),
        (40, COLUMNS),
        (38, ("thread", "held", "waits")),
        (20, ("thread", "held")),
    ],
)
def test_a_narrow_table_goes_without_what_matters_least(
    width: int, columns: tuple[str, ...]
) -> None:
    assert tuple(fitting(ROWS, width, ("id", "waits"))) == columns


@given(st.integers(0, 300))
def test_the_first_column_is_always_there(width: int) -> None:
    assert fitting(ROWS, width, COLUMNS[1:])[0] == "thread"


def test_no_colour_is_bare_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for given_, styled in (("1", False), ("", True)):
        monkeypatch.setenv("NO_COLOR", given_)
        assert (console().is_terminal and console().color_system is not None) == styled
