"""`deconvoy history` that is killed, or interrupted: nothing is lost, nothing is left."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
from commandline import DECONVOY
from test_repository import state
from tiny import repository

KILLS = 50

SLOW = """
[repository]
path = "repository"
range = "first..main"
[build]
steps = ["cp level built", "sleep 0.02", "cp level whole"]
inputs = ["level"]
[benchmark]
command = "sh -c 'sleep 0.01; echo {threads}$(cat {build}/whole)'"
threads = [1, 2]
repeats = 3
[read]
number = { pattern = "([0-9]+)" }
[metric]
value = "number[1] / number[2]"
quiet = false
"""


def test_a_sweep_that_is_killed_at_any_point_goes_on(tmp_path: Path) -> None:
    """Killed `KILLS` times at random; then the store is whole, all is measured as often as is
    wanted and no more, and nothing is left behind."""
    repository(tmp_path / "repository", [{"level": str(n)} for n in range(40)])
    (tmp_path / "deconvoy.toml").write_text(SLOW)
    before = state(tmp_path / "repository")
    # What a process inherits tells it from all others.
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "WHOSE": str(tmp_path)}
    command = [*DECONVOY, "history", "run", "--jobs", "2", "--json"]
    chosen = random.Random(1)
    kills = 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        # From when it begins to work: before, there is nothing to lose.
        begun = time.monotonic()
        while process.poll() is None and not (tmp_path / ".deconvoy" / "history.db").exists():
            time.sleep(0.01)
        time.sleep(max(0.0, chosen.uniform(0.35, 0.9) - (time.monotonic() - begun)))
        kills += process.poll() is None
        process.send_signal(chosen.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        process.wait()
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert kills >= 10
    found = json.loads(done.stdout)["revisions"]
    assert [len(one["samples"]) for one in found] == [3] * 40
    with sqlite3.connect(tmp_path / ".deconvoy" / "history.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = database.execute("SELECT key, failure FROM builds").fetchall()
        whole = database.execute(
            "SELECT count(*) FROM (SELECT round FROM runs GROUP BY round HAVING count(*) = 2)"
        ).fetchone()[0]
    assert all(failure is None for _, failure in rows)
    # Each was made once, and told once.
    assert len(rows) == 40
    assert {key for key, _ in rows} == {one["build"] for one in found}
    assert whole == 3 * 40
    builds = tmp_path / "cache" / "deconvoy" / "history" / "builds"
    deadline = time.monotonic() + 60
    while (left := theirs(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    folders = [path for path in builds.iterdir() if path.is_dir()]
    assert all((path / "done.json").exists() for path in folders)
    assert len(folders) == 40
    assert state(tmp_path / "repository") == before


def theirs(folder: Path) -> list[psutil.Process]:
    """Processes that were begun for a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("WHOSE") == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def is_asleep(process: psutil.Process) -> bool:
    """Whether it is the step that takes long; it may be gone by now."""
    try:
        return process.name() == "sleep"
    except psutil.Error:
        return False


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    repository(tmp_path / "repository", [{"level": str(n)} for n in range(9)])
    (tmp_path / "deconvoy.toml").write_text(SLOW.replace("sleep 0.02", "sleep 60"))
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = subprocess.Popen(
        [sys.executable, "-m", "deconvoy", "history", "run", "-j", "2"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    begun = psutil.Process(process.pid)
    while sum(map(is_asleep, begun.children(recursive=True))) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    several = begun.children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; what was built and measured is kept" in said and "Traceback" not in said
    assert not psutil.wait_procs(several, timeout=60)[1]
    with sqlite3.connect(tmp_path / ".deconvoy" / "history.db") as database:
        assert database.execute("SELECT count(*) FROM builds").fetchone() == (0,)


# The page.
