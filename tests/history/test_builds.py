"""Builds, runs and the store: what is kept, shared, and told of what goes wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from deconvoy.errors import UserError
from deconvoy.files import remove
from deconvoy.history.builds import WAITS
from deconvoy.history.runs import system_calls
from deconvoy.history.session import Session, opened
from deconvoy.history.store import Failure
from tiny import LIMITED, repository

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    revisions, change = getattr(request, "param", ([{}, {"level": "2"}, {"docs": "x"}], ""))
    repository(tmp_path / "repository", revisions)
    old, _, new = change.partition(" => ")
    (tmp_path / "deconvoy.toml").write_text(LIMITED.replace(old, new) if change else LIMITED)
    with opened(tmp_path / "deconvoy.toml") as found:
        yield found


def test_revisions_that_are_built_from_the_same_share_a_build(session: Session) -> None:
    chain = session.chain()
    assert chain.weights == [0.0, 1.0, 0.0]
    assert chain.distinct == 2
    laboratory = session.laboratory
    assert all(laboratory.ensure(source) for source in chain.sources)
    assert laboratory.builder.made == 2
    assert [laboratory.measure(source) for source in chain.sources] == [1.0, 2.0, 2.0]
    assert len(laboratory.rounds[chain.sources[2].key]) == 2


BROKEN = [
    {},
    {"build": "echo one; echo two >&2; exit 3"},
    {"build": "kill -SEGV $$"},
    {"build": "read answer"},
    {"build": "sleep 60"},
    {"build": "mkdir -p deep; cat /dev/null; true", "level": "none"},
]


@pytest.mark.parametrize("session", [(BROKEN, 'limit = "5s" => limit = "2s"')], indirect=True)
def test_what_fails_is_told_with_its_step_and_last_lines(session: Session, cache: Path) -> None:
    chain, laboratory = session.chain(), session.laboratory
    able = [laboratory.ensure(source) for source in chain.sources]
    assert able == [True, False, False, False, False, True]
    told = [laboratory.failures.get(source.key) for source in chain.sources]
    assert told[1] == Failure("sh ./build", "exit status 3; it said: one / two")
    assert told[2] == Failure("sh ./build", "exit status 139; it said: Segmentation fault")
    assert told[3] == Failure("sh ./build", WAITS)
    assert told[4] is not None and told[4].text.startswith("took longer than 2 s")
    assert laboratory.measure(chain.sources[0]) == 1.0
    assert laboratory.measure(chain.sources[5]) is None
    failure = laboratory.failures[chain.sources[5].key]
    assert failure.step == "read level" and "gives 'none', which is no number" in failure.text
    # Nothing half made is left.
    kept = {path.name for path in (cache / "builds").iterdir() if path.is_dir()}
    assert kept == {chain.sources[0].key, chain.sources[5].key}
    # And nothing that was begun.
    assert not [one for one in psutil.Process().children(True) if one.name() == "sleep"]


@pytest.mark.parametrize("session", [([{"build": "read a"}, {"level": "2"}], "")], indirect=True)
def test_a_recipe_that_waits_for_input_is_the_user_s(session: Session) -> None:
    chain = session.chain()
    assert not session.laboratory.ensure(chain.sources[0])
    with pytest.raises(UserError, match=r"the step 'sh ./build' waits for input"):
        session.laboratory.ensure(chain.sources[1])


@pytest.mark.parametrize(
    "session", [([{}, {"level": "2"}], 'COUNT=(.*)" => COUMT=(.*)"')], indirect=True
)
def test_a_pattern_that_matches_nothing_is_the_user_s(session: Session) -> None:
    chain = session.chain()
    for source in chain.sources:
        assert session.laboratory.ensure(source)
    assert session.laboratory.measure(chain.sources[0]) is None
    with pytest.raises(UserError, match="matches nothing in what the benchmark printed: COUNT=1"):
        session.laboratory.measure(chain.sources[1])


def test_what_a_build_has_made_read_only_is_removed_all_the_same() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as outer:
        place = Path(outer, "place")
        (place / "kept" / "deep").mkdir(parents=True)
        (place / "kept" / "deep" / "file").write_text("x")
        (place / "link").symlink_to(outer)
        Path(outer).chmod(0o755)
        (place / "kept" / "deep").chmod(0o555)
        (place / "kept").chmod(0o000)
        is_root = os.geteuid() == 0
        if is_root:
            # Who may do anything would prove nothing.
            subprocess.run(["chown", "-R", "65534", outer], check=True)
            os.seteuid(65534)
        try:
            with pytest.raises(PermissionError):
                shutil.rmtree(place)
            remove(place)
        finally:
            if is_root:
                os.seteuid(0)
        assert not place.exists() and Path(outer).stat().st_mode & 0o777 == 0o755


LARGE = [{"build": "dd if=/dev/zero of=large bs=1024 count=1024 2>/dev/null"}]
LARGE += [{"level": str(number)} for number in range(2, 6)]


@pytest.mark.parametrize(
    "session", [(LARGE, '[read] => [store]\nsize = "3M"\n[read]')], indirect=True
)
def test_builds_make_room_for_those_that_are_wanted(session: Session, cache: Path) -> None:
    chain, builder = session.chain(), session.laboratory.builder
    for number, source in enumerate(chain.sources):
        assert session.laboratory.ensure(source)
        # As if they were made one after the other, not in one tick of the file system's clock.
        done = builder.place(source.key) / "done.json"
        os.utime(done, (number, number))
    builder.want({chain.sources[0].key})
    over = builder.make_room()
    kept = [builder.has(source.key) for source in chain.sources]
    assert kept[0] and kept[-1] and not kept[1]
    assert over == 0
    builder.want({source.key for source in chain.sources})
    for source in chain.sources:
        assert session.laboratory.ensure(source)
    assert builder.make_room() > 0
    # What another process may be using stays.
    builder.want(set())
    with opened(session.project.file) as other:
        assert other.laboratory.ensure(other.chain().sources[0])
        builder.make_room()
        assert all(builder.has(source.key) for source in chain.sources)
    builder.make_room()
    assert not all(builder.has(source.key) for source in chain.sources)


@pytest.mark.parametrize(
    "session", [([{}, {"level": "2"}], 'limit = "5s" => keep = ["built"]')], indirect=True
)
def test_only_what_is_to_be_kept_is(session: Session) -> None:
    source = session.chain().sources[0]
    assert session.laboratory.ensure(source)
    tree = session.laboratory.builder.place(source.key) / "tree"
    assert [path.name for path in tree.iterdir()] == ["built"]
    assert session.laboratory.measure(source) == 1.0


def test_what_is_known_is_not_done_again(session: Session, tmp_path: Path) -> None:
    chain = session.chain()
    for source in chain.sources:
        assert session.laboratory.ensure(source)
        session.laboratory.measure(source)
    with opened(tmp_path / "deconvoy.toml") as again:
        assert again.laboratory.rounds.keys() == session.laboratory.rounds.keys()
        assert all(again.laboratory.is_built(source) for source in chain.sources)
        assert again.laboratory.ensure(chain.sources[0])
        assert again.laboratory.builder.made == 0
    # Another recipe makes other builds, another pattern other runs.
    file = tmp_path / "deconvoy.toml"
    file.write_text(file.read_text().replace("cp level built", "cp ./level built"))
    with opened(file) as other:
        assert not any(other.laboratory.is_built(source) for source in other.chain().sources)


# The store.


def test_what_cannot_be_checked_out_is_no_failure_of_the_revision(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be full."""

    def cannot(*_: object) -> None:
        raise OSError("No space left on device")

    builder = session.laboratory.builder
    source = session.chain().sources[0]
    monkeypatch.setattr(builder, "_export", cannot)
    with pytest.raises(UserError, match="cannot be checked out: No space left on device"):
        session.laboratory.ensure(source)
    assert not session.store.all_of("builds") and not builder.place(source.key).exists()


@pytest.mark.parametrize(
    "session",
    [([{}], '[benchmark] => environment = { VERSION = "{revision}" }\n[benchmark]')],
    indirect=True,
)
def test_a_build_that_knows_its_revision_is_its_own(session: Session) -> None:
    assert session.project.names_revisions


def test_a_cache_that_cannot_be_is_told(tmp_path: Path) -> None:
    repository(tmp_path / "repository", [{}, {"level": "2"}])
    (tmp_path / "file").write_text("x")
    file = tmp_path / "deconvoy.toml"
    file.write_text(LIMITED + "[store]\ncache = 'file/in'\n")
    with (
        pytest.raises(UserError, match=r"builds cannot go to .*: Not a directory: .*store\.cache"),
        opened(file) as found,
    ):
        found.laboratory.ensure(found.chain().sources[0])


def test_what_strace_counts() -> None:
    table = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 90.00    0.000100           1       100        20 futex
 10.00    0.000010           1        11           read
------ ----------- ----------- --------- --------- ----------------
100.00    0.000110           0       111        20 total
"""
    assert system_calls(table) == {"system_calls": 111.0, "futex": 100.0}
    without_each = table.replace("100.00    0.000110           0       111        20 total", "")
    assert system_calls(without_each) == system_calls(table)
    assert system_calls("") == {"system_calls": 0.0, "futex": 0.0}
