"""Small repositories and projects, whose builds are copies and whose benchmark prints a number."""

from __future__ import annotations

from pathlib import Path

from generator import git

PROJECT = """
[repository]
path = "repository"
range = "first..main"
[build]
steps = ["cp level built", "sh ./build"]
inputs = ["level", "build"]
[benchmark]
command = "sh -c 'echo COUNT=$(cat {build}/built)'"
threads = [1]
repeats = 2
[read]
level = { pattern = "COUNT=(.*)" }
[metric]
value = "level"
quiet = false
"""

# Each build has so long.
LIMITED = PROJECT.replace('["level", "build"]', '["level", "build"]\nlimit = "5s"')


def write(folder: Path, old: str = "", new: str = "") -> None:
    """A project whose metric is a count, which needs no quiet machine."""
    text = PROJECT.replace(old, new) if old else PROJECT
    (folder / "deconvoy.toml").write_text(text)


def repository(folder: Path, revisions: list[dict[str, str]]) -> None:
    """Revisions of what they write; `build` is a script that each may bring."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    for number, files in enumerate(revisions):
        for name, text in ({"level": "1", "build": "true"} if number == 0 else {}).items():
            (folder / name).write_text(text + "\n")
        for name, text in files.items():
            (folder / name).write_text(text + "\n")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--allow-empty", "--message", f"Step {number}")
        if number == 0:
            git(folder, "tag", "first")
