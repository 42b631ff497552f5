"""Runtimes by name: several versions of a language, policies under a Ruby, and its own slices."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commandline import Deconvoy
from deconvoy.bench import languages, matrix, ruby, runtimes
from deconvoy.bench.languages import LANGUAGES, Installed
from deconvoy.bench.results import load
from deconvoy.bench.runtimes import Runtime, choose
from deconvoy.errors import UserError


def installed_named(name: str, version: str) -> Installed:
    language = next(one for one in LANGUAGES if one.name == name)
    return Installed(language, name, version, f"{name} {version}")


def test_a_language_alone_names_all_of_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    several = {f"ruby3.{n}": installed_named("ruby", f"3.{n}") for n in (1, 3)}
    missing = {"perl": "not installed: apt-get install perl"}
    monkeypatch.setattr(languages, "installed", lambda: (several, missing))
    monkeypatch.setattr(runtimes, "find_interpreters", list)
    chosen, skipped = choose(["ruby", "perl"])
    assert [one.name for one in chosen] == ["ruby3.1", "ruby3.3"]
    assert skipped["perl"] == "not installed: apt-get install perl"
    chosen, skipped = choose(["ruby3.3", "ruby+adaptive", "perl+adaptive"])
    assert [one.name for one in chosen] == ["ruby3.3", "ruby3.1+adaptive", "ruby3.3+adaptive"]
    assert [one.policy for one in chosen] == [None, "adaptive", "adaptive"]
    assert list(skipped) == ["perl"]
    with pytest.raises(UserError, match="no runtime 'rub'"):
        choose(["rub"])


def test_a_policy_is_put_only_under_what_it_can_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    both = installed_named("perl", "5.36"), installed_named("ruby", "2.5")
    found = {one.name: one for one in both}
    monkeypatch.setattr(languages, "installed", lambda: (found, {}))
    monkeypatch.setattr(runtimes, "find_interpreters", list)
    chosen, skipped = choose(["perl+adaptive", "ruby2.5+adaptive+trace"])
    assert not chosen
    assert "only a CPython or a Ruby" in skipped["perl5.36+adaptive"]
    assert "only 2.6 or later" in skipped["ruby2.5+adaptive+trace"]


@pytest.mark.parametrize(
    ("version", "slice_s", "arguments", "environment"),
    [
        ("3.1", None, [], {}),
        ("3.1", 0.1, ["--priority", "0"], {}),
        ("3.3", 0.05, ["--priority", "-1"], {}),
        ("3.3", 0.0125, ["--priority", "-3"], {}),
        ("3.4", 0.005, [], {"RUBY_THREAD_TIMESLICE": "5"}),
        ("4.0", 0.1, [], {"RUBY_THREAD_TIMESLICE": "100"}),
    ],
)
def test_a_slice_of_ruby_is_set_by_what_its_version_has(
    version: str, slice_s: float | None, arguments: list[str], environment: dict[str, str]
) -> None:
    assert ruby.how_to_have(slice_s, version) == (arguments, environment)
    one = Runtime("ruby", "", installed=installed_named("ruby", version))
    assert one.arguments(slice_s) == arguments
    assert environment.items() <= one.environment(slice_s).items()


@pytest.mark.parametrize(("version", "slice_s"), [("3.1", 0.05), ("3.3", 0.02)])
def test_a_slice_that_a_ruby_cannot_have_is_told(version: str, slice_s: float) -> None:
    with pytest.raises(UserError, match=f"a slice of Ruby {version} is 100 ms"):
        ruby.how_to_have(slice_s, version)


@pytest.mark.parametrize("version", ["2.7", "3.1", "3.3", "3.4"])
def test_the_curve_of_a_ruby_is_of_slices_that_it_can_have(version: str) -> None:
    lengths = ruby.slices_s(version)
    assert lengths[0] is None
    for length in lengths:
        ruby.how_to_have(length, version)
    runtime = Runtime("ruby", "", installed=installed_named("ruby", version))
    ours = Runtime("ruby+adaptive", "", installed=runtime.installed, policy="adaptive")
    cases = matrix.pareto_cases([runtime, ours], 10)
    assert len(cases) == len(matrix.PARETO_WORKERS) * (len(lengths) + 1)


def test_a_ruby_that_nobody_named_is_left_out_where_it_cannot_have_the_interval() -> None:
    old, new = (
        Runtime(f"ruby{version}", "", installed=installed_named("ruby", version))
        for version in ("3.1", "3.4")
    )
    skipped: dict[str, str] = {}
    assert matrix.able([old, new], 0.001, skipped) == [new]
    assert "a slice of Ruby 3.1 is 100 ms long" in skipped["ruby3.1"]
    assert matrix.able([old, new], None, {}) == [old, new]


@pytest.fixture
def system_ruby() -> Installed:
    found, missing = languages.installed()
    in_path = [one for one in found.values() if one.command == shutil.which("ruby")]
    if not in_path:
        pytest.skip(missing.get("ruby", "no Ruby in PATH"))
    return in_path[0]


def test_messages_of_a_ruby_under_a_policy(
    deconvoy: Deconvoy, system_ruby: Installed, tmp_path: Path
) -> None:
    kept = tmp_path / "ruby.jsonl"
    name = f"{system_ruby.name}+adaptive"
    series = ("--workers", "1", "--work", "20", "--runs", "1", "--mode", "thread")
    done = deconvoy("bench", "messaging", "--runtime", name, *series, "-o", kept)
    assert done.returncode == 0, done.stderr
    (run,) = load(kept).runs
    # Stock answers two or three in a second.
    assert (run.runtime, run.values["messages"]) == (name, 20)
    assert run.values["kept"] > 0


def test_a_trace_of_a_ruby_says_who_waits_for_whom(
    deconvoy: Deconvoy, system_ruby: Installed, tmp_path: Path
) -> None:
    program = """
    Thread.new { loop {} }
    sleeper = Thread.new { 5.times { sleep 0.001 } }
    sleeper.join
    exit!(0)
    """
    folder = tmp_path / "trace"
    done = deconvoy("trace", "-o", folder, "--", system_ruby.command, "-e", program)
    assert done.returncode == 0, done.stderr
    said = deconvoy("report", folder)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert any(line.startswith(" runtime") and " ruby " in line for line in lines)
    assert any(line.startswith(" GVL") for line in lines)


def test_a_trace_of_a_ruby_says_when_it_ends_before_the_program(
    deconvoy: Deconvoy, tmp_path: Path
) -> None:
    """From 3.3 on a second Ractor ends it: each has a lock of its own."""
    found, _ = languages.installed()
    rubies = [one for one in found.values() if one.name in ("ruby3.3", "ruby3.4")]
    if not rubies:
        pytest.skip("no Ruby 3.3: ci/rubies get 3.3")
    program = "$VERBOSE = nil; Ractor.new { Thread.new {}.join }.take; Thread.new {}.join"
    folder = tmp_path / "trace"
    done = deconvoy("trace", "-o", folder, "--", rubies[0].command, "-e", program)
    assert done.returncode == 0, done.stderr
    said = deconvoy("report", folder)
    assert "then a second Ractor began" in said.stdout
