"""Project files: what they say, and what is wrong in them."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import pytest
from deconvoy.errors import UserError
from deconvoy.history.metric import Expression, NoNumber, Reader, reader_from
from deconvoy.history.project import KEYS, filled, load, parse, template
from deconvoy.history.values import size_of, time_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GOOD = """
[repository]
range = "a..b"
[build]
steps = ["make"]
[benchmark]
command = "./bench {threads}"
[read]
time = "elapsed"
"""


def said(text: str, tmp_path: Path) -> str:
    file = tmp_path / "deconvoy.toml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        load(file)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_template_is_a_project(tmp_path: Path) -> None:
    file = tmp_path / "deconvoy.toml"
    file.write_text(template())
    project = load(file)
    assert project.metric.text == "time[1] / time[2]"
    assert project.benchmark.threads == (1, 2)


def test_what_the_template_has_in_comments_is_known() -> None:
    lines = []
    for line in template().splitlines():
        bare = line.removeprefix("# ")
        lines.append(bare if line.startswith("# ") and "=" in bare else line)
    keys = {line.split("=")[0].strip() for line in lines if "=" in line and line[:1].isalpha()}
    known = {key for several in KEYS.values() if several for key in several}
    assert keys - known == {"time", "waits", "locks", "calls"}
    assert known - keys == {"kind"}


def test_defaults(tmp_path: Path) -> None:
    file = tmp_path / "deconvoy.toml"
    file.write_text(GOOD)
    project = load(file)
    assert project.metric.text == "time[2]"
    assert (project.better, project.least) == ("lower", 0.05)
    assert project.benchmark.repeats == 5


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("steps =", "step =", "nobody knows build.step: did you mean build.steps?"),
        ("[benchmark]", "[bench]", "nobody knows bench"),
        ('range = "a..b"', "", "repository.range or repository.revisions says which"),
        ("{threads}", "", "benchmark.command has no {threads}"),
        ("{threads}", "{thread}", "nobody knows {thread}: there are {threads}"),
        ('"elapsed"', '"elapse"', "nobody knows elapse: did you mean elapsed?"),
        ('"elapsed"', "{ pattern = 'a' }", "read.time.pattern has no group"),
        ('"elapsed"', "{ pattern = '(' }", "missing ), unterminated subpattern"),
        ('time = "elapsed"', "", "[read] says how numbers are read"),
        ("[read]", "[metric]\nvalue = 'time[3]'\n[read]", "benchmark.threads has no 3"),
        ("[read]", "[metric]\nvalue = 'tim[2]'\n[read]", "[read] has no tim: there are time"),
        ("[read]", "[metric]\nvalue = 'time'\n[read]", "time with how many threads?"),
        ("[read]", "[metric]\nvalue = 'exit()'\n[read]", "cannot work out 'exit()'"),
        ("[read]", "[metric]\nvalue = '1 +'\n[read]", "metric.value is no expression"),
        ("[read]", "[metric]\nvalue = '3'\n[read]", "has nothing that is read"),
        ("[read]", "[metric]\nbetter = 'more'\n[read]", "metric.better is lower or higher"),
        ("[read]", "[metric]\nleast = '0'\n[read]", "metric.least is the least change"),
        ("[read]", "[search]\nconfidence = 2.0\n[read]", "search.confidence is between"),
        ("[read]", "[store]\nsize = 'big'\n[read]", "store.size is a size"),
        ("[build]", "[build]\nlimit = '3 days'", "build.limit is a time: '30s'"),
        ("[benchmark]", "[benchmark]\nthreads = [0]", "benchmark.threads is a list of numbers"),
        ("[benchmark]", "[benchmark]\nfolder = 'nowhere'", "there is no folder nowhere"),
        ("[read]", "[read", "deconvoy.toml: "),
    ],
)
def test_mistakes_are_one_line_that_says_the_mend(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert old in GOOD
    assert told in said(GOOD.replace(old, new, 1), tmp_path)


def test_without_a_file_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="deconvoy history init"):
        load(tmp_path / "deconvoy.toml")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
tables = st.dictionaries(
    st.sampled_from(sorted(KEYS)),
    st.dictionaries(
        st.sampled_from(sorted({key for several in KEYS.values() for key in several or ()})),
        values,
        max_size=5,
    )
    | values,
    max_size=7,
)


# How long it takes to think of a table is a matter of how busy the machine is.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables)
def test_whatever_is_in_it_only_the_user_is_told(data: dict[str, object]) -> None:
    with suppress(UserError):
        parse(data, Path("/nowhere/deconvoy.toml"))


@settings(deadline=None)
@given(st.text(max_size=30))
def test_an_expression_is_arithmetic_or_refused(text: str) -> None:
    try:
        expression = Expression(text)
        expression.check({"a"}, [1, 2])
    except UserError:
        return
    value = expression.value({1: {"a": 1.0}, 2: {"a": 2.0}})
    assert isinstance(value, float)


def test_expressions() -> None:
    expression = Expression("(time[1] - 1) / -time[2] * 2")
    expression.check({"time"}, [1, 2])
    assert expression.uses == [("time", 1), ("time", 2)]
    assert expression.value({1: {"time": 3.0}, 2: {"time": 4.0}}) == -1.0
    assert math.isnan(expression.value({1: {"time": 3.0}, 2: {"time": 0.0}}))


def test_readers() -> None:
    printed = 'x\nREAL TIME=1.25 s\n{"a": {"b": [1, 2.5]}}\n'
    assert reader_from("t", {"pattern": "TIME=([0-9.]+)"}).read(printed, {}) == 1.25
    assert reader_from("t", {"json": "a.b.1"}).read(printed, {}) == 2.5
    assert Reader("elapsed", "elapsed").read("", {"elapsed_s": 3.0}) == 3.0
    with pytest.raises(NoNumber, match="matches nothing in what the benchmark printed: x / REAL"):
        reader_from("t", {"pattern": "NONE=(.*)"}).read(printed, {})
    with pytest.raises(NoNumber, match="gives 'abc', which is no number"):
        reader_from("t", {"pattern": "is (abc)"}).read("it is abc", {})
    with pytest.raises(NoNumber):
        reader_from("t", {"json": "a.c"}).read(printed, {})


def test_units() -> None:
    assert (time_of("90s", ""), time_of("1.5 min", ""), time_of("2h", "")) == (90, 90, 7200)
    assert (size_of("500M"), size_of("2 GiB"), size_of("1k".upper())) == (500 << 20, 2 << 30, 1024)
    assert filled("{build}/a {x} ${HOME}", {"build": "/b"}) == "/b/a {x} ${HOME}"
