"""Repositories for the tests, made from a seed: a trunk, and branches that it merges."""

from __future__ import annotations

import os
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


@dataclass(frozen=True)
class Commit:
    """One of a generated history: `mark` from 1 on, those that it follows, what it writes (the
    number of its last change of the source), and whether it is on the trunk."""

    mark: int
    parents: tuple[int, ...]
    source: int
    is_trunk: bool


def history(seed: int, count: int) -> list[Commit]:
    """`count` commits, of which about a third are on branches that were merged, and one in six
    touches documents alone."""
    chosen = random.Random(seed)
    made = [Commit(1, (), 1, True)]
    while len(made) < count:
        trunk = [one for one in made if one.is_trunk]
        at = trunk[-1]
        left = count - len(made)
        if left > 8 and chosen.random() < 0.04:
            base = trunk[max(0, len(trunk) - 1 - chosen.randrange(6))]
            for _ in range(min(left - 1, chosen.randrange(3, 30))):
                base = Commit(len(made) + 1, (base.mark,), len(made) + 1, False)
                made.append(base)
            parents = (at.mark, base.mark)
            made.append(Commit(len(made) + 1, parents, len(made) + 1, True))
            continue
        documents = chosen.random() < 1 / 6
        source = at.source if documents else len(made) + 1
        made.append(Commit(len(made) + 1, (at.mark,), source, True))
    return made


def stream(commits: list[Commit]) -> bytes:
    """As `git fast-import` reads it."""
    parts = []
    for one in commits:
        parts.append(f"commit refs/heads/main\nmark :{one.mark}\n")
        parts.append(f"committer A <a@example.org> {1_000_000_000 + 60 * one.mark} +0000\n")
        message = f"revision {one.mark}\n"
        parts.append(f"data {len(message)}\n{message}")
        for word, parent in zip(("from", *["merge"] * 9), one.parents, strict=False):
            parts.append(f"{word} :{parent}\n")
        if one.parents:
            parts.append("deleteall\n")
        for path, text in (("src/code.c", one.source), ("docs/notes.txt", one.mark)):
            body = f"{text}\n"
            parts.append(f"M 100644 inline {path}\ndata {len(body)}\n{body}")
        parts.append("\n")
    return "".join(parts).encode()


def git(folder: Path, *arguments: str, given: bytes | None = None) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        input=given,
        capture_output=True,
        env=os.environ | GIT,
        check=True,
    )
    return done.stdout.decode()


def git_repository(folder: Path, commits: list[Commit]) -> dict[int, str]:
    """A bare repository of them; their names by mark."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main")
    marks = folder / "marks"
    git(folder, "fast-import", "--quiet", f"--export-marks={marks}", given=stream(commits))
    pairs = (line.split() for line in marks.read_text().splitlines())
    return {int(mark[1:]): name for mark, name in pairs}


def fossil_repository(file: Path, commits: list[Commit]) -> None:
    """A Fossil repository of the same commits."""
    own = file.with_suffix(".home")
    own.mkdir()
    subprocess.run(
        ["fossil", "import", "--git", str(file)],
        input=stream(commits),
        capture_output=True,
        env=os.environ | {"HOME": str(own), "FOSSIL_USER": "a"},
        check=True,
    )
