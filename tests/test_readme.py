"""Every block of output in README.md comes from its command: run here, numbers and places aside."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import Deconvoy

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)
BLOCKS = [match.groups() for match in BLOCK.finditer(README.read_text())]


def shape(text: str) -> list[str]:
    """The text without what differs from run to run: numbers, units, rules, where Python is."""
    text = re.sub(r"\S*/python[\w.]*", "python", text)
    text = re.sub(r"\d[\d.,]*", "N", text)
    text = re.sub(r"\bN (ns|us|ms|s)\b", "N", text)
    text = re.sub(r"─+", "-", text)
    # As busy as the machine is.
    text = re.sub(r"about (one|half a|N) switch intervals?", "about N switch intervals", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_readme_has_blocks() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize(("command", "output"), BLOCKS)
def test_a_block_is_what_its_command_prints(deconvoy: Deconvoy, command: str, output: str) -> None:
    words = shlex.split(command)
    assert words[0] == "deconvoy"
    words = [sys.executable if word == "python" else word for word in words[1:]]
    done: subprocess.CompletedProcess[str] = deconvoy(*words)
    assert done.returncode == 0, done.stderr
    # Streams are two; a reader sees the program's output, then ours.
    assert shape(done.stdout + done.stderr) == shape(output)
