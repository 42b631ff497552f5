"""Repositories: what is read of them, and that nothing is written to them."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from deconvoy.errors import UserError
from deconvoy.history.fossil import Fossil
from deconvoy.history.git import Git
from deconvoy.history.repository import open_repository
from generator import fossil_repository, git, git_repository, history


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With a link, a program, a name with a space, what an attribute keeps out of archives, a
    branch that is merged, a stash, and changes that are not committed."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "src").mkdir()
    (folder / "src" / "a b.c").write_text("1\n")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("run")
    (folder / ".gitattributes").write_text("run export-ignore\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "First\n\nwith a body")
    git(folder, "tag", "--annotate", "--message", "x", "v1")
    git(folder, "checkout", "--quiet", "-b", "side")
    (folder / "src" / "a b.c").write_text("2\n")
    git(folder, "commit", "--quiet", "--all", "--message", "On a side")
    git(folder, "checkout", "--quiet", "main")
    (folder / "NOTES").write_text("x\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Notes")
    git(folder, "merge", "--quiet", "--no-ff", "--message", "Merge side", "side")
    (folder / "src" / "a b.c").write_text("3\n")
    git(folder, "stash")
    (folder / "src" / "a b.c").write_text("4\n")
    (folder / "new").write_text("staged\n")
    git(folder, "add", "new")
    return folder


def state(folder: Path) -> dict[str, str]:
    """All that is in a folder."""
    found = {}
    for inside, _, files in os.walk(folder):
        for name in files:
            path = Path(inside, name)
            content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            told = path.lstat()
            digest = hashlib.sha256(content).hexdigest()
            found[str(path)] = f"{digest} {told.st_mtime_ns} {told.st_mode}"
    return found


def test_what_git_tells(repository: Path, tmp_path: Path) -> None:
    before = state(repository)
    # From a folder in it, as a project file may stand there.
    opened = Git(repository / "src")
    newest, oldest = opened.revision("main"), opened.revision("v1")
    assert newest.is_merge and newest.subject == "Merge side" and newest.author == "A"
    chain = opened.chain(oldest, newest)
    assert [one.subject for one in chain] == ["First", "Notes", "Merge side"]
    assert [one.subject for one in opened.merged(newest)] == ["On a side"]
    assert opened.tags() == {oldest.id: "v1"}
    inputs = opened.inputs(chain, ["src", "nowhere"])
    assert inputs[0] == inputs[1] != inputs[2]
    assert [one.subject for one in opened.touching(chain, "NOTES")] == ["Notes"]
    assert opened.read(oldest, "src/a b.c") == "1\n" and opened.read(oldest, "NOTES") is None
    assert opened.details(oldest).message == "First\n\nwith a body"
    assert opened.details(newest).files == ("M src/a b.c",)
    folder = tmp_path / "export"
    folder.mkdir()
    opened.export(newest, folder)
    assert (folder / "src" / "a b.c").read_text() == "2\n"
    assert os.access(folder / "run", os.X_OK) and os.readlink(folder / "link") == "run"
    assert state(repository) == before


def test_mistakes_name_the_mend(repository: Path, tmp_path: Path) -> None:
    opened = Git(repository)
    newest, oldest = opened.revision("main"), opened.revision("v1")
    with pytest.raises(UserError, match="has no revision 'v2': a commit, a tag or a branch"):
        opened.revision("v2")
    with pytest.raises(UserError, match="is not among the first parents of"):
        opened.chain(newest, oldest)
    with pytest.raises(UserError, match="is not among the first parents of"):
        opened.chain(opened.revision("side"), newest)
    with pytest.raises(UserError, match="one revision"):
        opened.chain(oldest, oldest)
    with pytest.raises(UserError, match="is in no Git repository"):
        Git(tmp_path)
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", "shallow")
    with pytest.raises(UserError, match="git fetch --unshallow"):
        Git(tmp_path / "shallow")
    with pytest.raises(UserError, match="there is no "):
        open_repository("nowhere", None, tmp_path, tmp_path)


def test_an_address_is_cloned_once_and_brought_up_to_date(repository: Path, tmp_path: Path) -> None:
    address = f"file://{repository}"
    first = open_repository(address, None, tmp_path, tmp_path / "cache")
    assert first.revision("main").subject == "Merge side"
    git(repository, "commit", "--quiet", "--message", "One more")
    again = open_repository(address, None, tmp_path, tmp_path / "cache")
    assert again.revision("main").subject == "One more"
    with pytest.raises(UserError, match=r"repository\.path"):
        open_repository("file:///no/where", None, tmp_path, tmp_path / "cache")


def test_a_user_s_settings_do_not_matter(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that change what Git prints, and another repository in the environment."""
    settings = tmp_path / "settings"
    settings.write_text("[log]\nshowSignature = true\ndecorate = full\n[core]\nquotePath = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    opened = Git(repository)
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other"))
    chain = opened.chain(opened.revision("v1"), opened.revision("main"))
    assert len(chain) == 3
    folder = tmp_path / "export"
    folder.mkdir()
    opened.export(chain[0], folder)
    assert (folder / "src" / "a b.c").exists() and not (tmp_path / "other").exists()


@pytest.mark.parametrize("seed", range(4))
def test_what_all_merges_brought_is_what_each_did(tmp_path: Path, seed: int) -> None:
    """Also of branches that leave from a branch, and merge the trunk or several at once."""
    commits = history(seed, 150)
    chosen = random.Random(seed)
    for number, one in enumerate(commits[20:], start=20):
        extra = chosen.choice(commits[: number - 1]).mark
        if chosen.random() < 0.15 and extra not in one.parents:
            commits[number] = replace(one, parents=(*one.parents, extra))
    git_repository(tmp_path / "it.git", commits)
    opened = Git(tmp_path / "it.git")
    newest = opened.revision("main")
    first = newest
    while first.parents:
        first = opened.revision(first.parents[0])
    chain = opened.chain(first, newest)
    several = [chain, chain[10:], chain[::3], [chain[0], *opened.merged(chain[-1]), chain[-1]]]
    for some in several:
        merges = [one for one in some[1:] if one.is_merge]
        assert opened.brought(some) == {one.id: opened.merged(one) for one in merges}
    assert any(opened.brought(chain).values())


@pytest.fixture
def fossil(tmp_path: Path) -> Path:
    if shutil.which("fossil") is None:
        pytest.skip("fossil is not installed")
    fossil_repository(tmp_path / "it.fossil", history(7, 120))
    return tmp_path / "it.fossil"


def test_what_fossil_tells(fossil: Path, tmp_path: Path) -> None:
    before = state(fossil.parent)
    opened = Fossil(fossil, tmp_path.parent / f"{tmp_path.name}-copies")
    chain = opened.chain(opened.oldest(), opened.revision("trunk"))
    assert chain[0].subject == "revision 1"
    assert opened.revision(chain[5].short) == chain[5]
    merge = next(one for one in chain if one.is_merge)
    branch = opened.merged(merge)
    assert (
        branch and branch[-1].id in merge.parents and branch[0].parents[0] in {c.id for c in chain}
    )
    inputs = opened.inputs(chain, ["src"])
    everything = opened.inputs(chain, [])
    assert len(set(everything)) == len(chain) > len(set(inputs))
    touched = opened.touching(chain, "src/code.c")
    assert 0 < len(touched) < len(chain)
    assert (opened.read(chain[0], "src/code.c") or "").strip() == "1"
    assert opened.read(chain[0], "nowhere") is None
    details = opened.details(chain[1])
    assert details.message == chain[1].subject and "M docs/notes.txt" in details.files
    folder = tmp_path / "export"
    folder.mkdir()
    opened.export(chain[0], folder)
    assert (folder / "src" / "code.c").read_text() == "1\n"
    shutil.rmtree(folder)
    with pytest.raises(UserError, match="has no check-in"):
        opened.revision("nowhere")
    with pytest.raises(UserError, match="is not among the primary ancestors"):
        opened.chain(chain[-1], chain[0])
    assert state(fossil.parent) == before


def test_a_fossil_that_logs_ahead_is_only_read(fossil: Path, tmp_path: Path) -> None:
    """What was written to its log is read, too, and nothing is put beside it."""
    place = tmp_path / "own"
    place.mkdir()
    with closing(sqlite3.connect(fossil)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("UPDATE event SET ecomment = 'said again' WHERE type = 'ci'")
        writer.commit()
        # As a process leaves it that was killed.
        for path in fossil.parent.glob("it.fossil*"):
            if path.is_file() and not path.name.endswith("-shm"):
                shutil.copyfile(path, place / path.name)
    before = state(place)
    assert len(before) == 2
    opened = open_repository("own/it.fossil", None, tmp_path, tmp_path / "cache")
    assert opened.kind == "fossil"
    assert opened.revision("trunk").subject == "said again"
    assert state(place) == before
    with closing(sqlite3.connect(place / "it.fossil")) as writer:
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = state(place)
    assert len(before) == 1
    assert open_repository("own/it.fossil", None, tmp_path, tmp_path / "cache").revision("trunk")
    assert state(place) == before


def test_a_copy_of_fossil_stays_as_long_as_it_is_used(fossil: Path, tmp_path: Path) -> None:
    first = Fossil(fossil, tmp_path / "copies")
    with closing(sqlite3.connect(fossil)) as writer:
        writer.execute("UPDATE event SET ecomment = 'said again' WHERE type = 'ci'")
        writer.commit()
    second = Fossil(fossil, tmp_path / "copies")
    newest = first.revision("trunk")
    folder = tmp_path / "export"
    folder.mkdir()
    first.export(newest, folder)
    assert (folder / "src").is_dir()
    assert second.revision("trunk").subject == "said again"
    del first
    gc.collect()
    Fossil(fossil, tmp_path / "copies")
    assert len(list((tmp_path / "copies").glob("*.copy.fossil"))) == 2
    with closing(sqlite3.connect(fossil)) as writer:
        writer.execute("UPDATE event SET ecomment = 'once more' WHERE type = 'ci'")
        writer.commit()
    third = Fossil(fossil, tmp_path / "copies")
    # That of the second, which is still there.
    assert len(list((tmp_path / "copies").glob("*.copy.fossil"))) == 2
    assert third.revision("trunk").subject == "once more"
    assert second.revision("trunk").subject == "said again"


def test_the_check_in_that_fossil_begins_with_has_no_files(tmp_path: Path) -> None:
    if shutil.which("fossil") is None:
        pytest.skip("fossil is not installed")
    own = os.environ | {"HOME": str(tmp_path), "FOSSIL_USER": "a"}
    command = ["fossil", "init", "it.fossil"]
    subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, check=True)
    opened = Fossil(tmp_path / "it.fossil", tmp_path / "copies")
    folder = tmp_path / "export"
    folder.mkdir()
    opened.export(opened.revision("trunk"), folder)
    assert not list(folder.iterdir())


def test_a_check_out_of_fossil_is_its_repository(fossil: Path, tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir()
    own = os.environ | {"HOME": str(tmp_path), "FOSSIL_USER": "a"}
    command = ["fossil", "open", str(fossil), "--nosync"]
    subprocess.run(command, cwd=place, env=own, capture_output=True, check=True)
    opened = open_repository("open/src", None, tmp_path, tmp_path / "cache")
    assert opened.kind == "fossil"
    assert opened.revision("trunk").subject == "revision 120"
