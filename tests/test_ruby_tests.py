"""Ruby's own regression tests say the same under the library as without it."""

from pathlib import Path

from upstream import require_no_regression, run

SCRIPT = "ruby-tests"
# No Ruby, or no mirror of Debian's that has the source of one.
CANNOT = ("no Ruby found", "cannot be had")


def test_no_method_fails_only_under_the_library(tmp_path: Path) -> None:
    require_no_regression(SCRIPT, CANNOT, tmp_path)


def test_a_ruby_that_is_none_is_refused(tmp_path: Path) -> None:
    done = run(SCRIPT, "-i", tmp_path / "ruby")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [f"ci/ruby-tests: {tmp_path / 'ruby'} is no Ruby that runs"]
