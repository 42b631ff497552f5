"""CPython's own regression tests say the same under the library as without it."""

from pathlib import Path

from upstream import require_no_regression, run

SCRIPT = "cpython-tests"
CANNOT = ("no CPython from 3.8 on that ships its tests",)


def test_no_method_fails_only_under_the_library(tmp_path: Path) -> None:
    require_no_regression(SCRIPT, CANNOT, tmp_path)


def test_an_interpreter_that_is_none_is_refused(tmp_path: Path) -> None:
    done = run(SCRIPT, "-i", tmp_path / "python")
    assert (done.returncode, done.stdout) == (2, "")
    said = f"ci/cpython-tests: {tmp_path / 'python'} is no CPython that runs"
    assert done.stderr.splitlines() == [said]
