"""Result files: whole at every moment, read again by every later version, gone on with."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
from commandline import Deconvoy
from deconvoy import __version__
from deconvoy.bench import machine, plan, series
from deconvoy.bench.results import VERSION, Journal, Result, Run, load
from deconvoy.bench.runtimes import Runtime
from deconvoy.bench.scenario import Case
from deconvoy.bench.store import open_result
from deconvoy.errors import UserError
from rich.console import Console


def a_run(order: int, mode: str | None = "thread", workers: int = 1) -> Run:
    return Run("c", "countdown", workers, order, {"elapsed_s": 1.0}, 0.0, True, mode=mode)


def a_result(*runs: Run) -> Result:
    return Result(["deconvoy"], 1.0, "0", {"processor": "P"}, {}, {"c": "gcc"}, list(runs))


def test_a_result_is_whole_and_comes_back(tmp_path: Path) -> None:
    result = a_result(a_run(0))
    result.failed["c"] = "crashed"
    result.machines["other"] = {"processor": "Q"}
    place = tmp_path / "result.jsonl"
    result.save(place)
    result.save(place)
    assert load(place) == result
    assert list(tmp_path.iterdir()) == [place]


def test_a_journal_is_readable_wherever_it_is_cut(tmp_path: Path) -> None:
    place = tmp_path / "result.jsonl"
    with Journal(a_result(), place) as journal:
        journal.take(run=a_run(0))
        journal.take(skipped=("perl", "not installed"))
        journal.take(run=a_run(1))
        assert load(place) == journal.result
    whole = place.read_bytes()
    first = whole.index(b"\n") + 1
    seen = set()
    for length in range(first, len(whole) + 1):
        place.write_bytes(whole[:length])
        found = load(place)
        seen.add((len(found.runs), len(found.skipped)))
        assert [run.order for run in found.runs] == list(range(len(found.runs)))
    assert seen == {(0, 0), (1, 0), (1, 1), (2, 1)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a result of deconvoy bench, or damaged"),
        ("{", "not a result of deconvoy bench, or damaged"),
        ("[]", "not a result of deconvoy bench"),
        (json.dumps({"version": VERSION + 1, "runs": []}), "written by a newer deconvoy"),
        (json.dumps({"version": VERSION, "odd": 1}), "damaged"),
        (json.dumps(asdict(a_result()) | {"runtimes": 7}), "a part is no object"),
        (next(a_result().lines()) + '{"odd": 1}\n', "damaged: what is 'odd'"),
        (next(a_result().lines()) + '{"run": {}}\n{}\n', "damaged"),
        (next(a_result().lines()) + "{\n", "not a result of deconvoy bench, or damaged"),
    ],
)
def test_a_bad_result_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    place = tmp_path / "result.jsonl"
    place.write_text(text)
    with pytest.raises(UserError, match=says):
        load(place)


def test_older_results_are_read(tmp_path: Path) -> None:
    """As they were written before version 4: one object; before 3 only tasks had a mode."""
    runs = [asdict(a_run(n, None, workers)) for n, workers in enumerate((1, 2))]
    for run in runs:
        del run["machine"]
    old = asdict(a_result()) | {"runs": runs, "version": 2}
    del old["machines"]
    place = tmp_path / "old.json"
    place.write_text(json.dumps(old))
    found = load(place)
    assert ([run.mode for run in found.runs], found.version) == (["sequential", "thread"], VERSION)


def test_a_folder_of_results_is_one(tmp_path: Path) -> None:
    first, second, elsewhere = a_result(a_run(0)), a_result(a_run(0)), a_result(a_run(0))
    first.runs.append(replace(a_run(1), runtime="java17"))
    first.runtimes["java17"], second.runtimes["java17"] = "17.0.1", "17.0.2"
    second.created_unix_s = elsewhere.created_unix_s = 2.0
    second.runtimes["ruby3.1"] = "ruby"
    elsewhere.created_unix_s = 0.0
    elsewhere.machine = {"processor": "Q", "cores_available": 9}
    for number, one in enumerate((first, second, elsewhere)):
        one.save(tmp_path / f"{number}.jsonl")
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "bad.jsonl").write_text("?")
    found = open_result(tmp_path)
    assert [run.machine for run in found.runs] == ["Q, 9 cores", "", ""]
    assert found.machines == {"Q, 9 cores": elsewhere.machine}
    assert found.runtimes == {"c": "gcc", "ruby3.1": "ruby", "java17": "17.0.2"}
    assert found.skipped == {
        "java17": "older runs, by 17.0.1",
        "bad.jsonl": "no result of deconvoy bench",
    }
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="no result of deconvoy bench in it"):
        open_result(empty)


class Counting:
    """Programs that write down that they ran."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        text = f"open({str(place)!r}, 'a').write('.'); print('{{\"elapsed_s\": 1.0}}')"
        monkeypatch.setattr(Runtime, "command", lambda *_: [sys.executable, "-c", text])
        monkeypatch.setattr(machine, "PATIENCE_S", 0.0)
        # Each once, whatever else this machine does.
        monkeypatch.setattr(plan, "REPEATS", 0)

    @property
    def runs(self) -> int:
        return self.place.stat().st_size if self.place.exists() else 0


def test_what_was_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(tmp_path / "runs", monkeypatch)
    path = tmp_path / "result.jsonl"
    chosen = [Runtime(name, name, python=sys.executable) for name in ("one", "two")]
    cases = [Case("countdown", one, 1, 1, mode="sequential") for one in chosen]
    settings = {"seed": 1, "rounds": 3, "pareto": False, "traces": None}
    series.execute(series.new_result(chosen, {}, settings), cases, path, quiet_console())
    assert counting.runs == 6
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:4]) + whole[4][:20])
    monkeypatch.setattr(series, "choose", lambda *_: (chosen, {}))
    result = open_result(path)
    assert len(result.runs) == 3
    again = series.cases_from(result, path)
    assert again == cases
    series.execute(result, again, path, quiet_console())
    assert counting.runs == 6 + 3
    found = load(path)
    assert sorted(run.order for run in found.runs) == list(range(6))
    orders = [(run.runtime, run.order) for run in found.runs]
    assert orders == [(json.loads(line)["run"]["runtime"], n) for n, line in enumerate(whole[1:])]


def quiet_console() -> Console:
    return Console(file=io.StringIO())


def test_a_runtime_that_is_another_by_now_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = a_result()
    result.deconvoy, result.machine = __version__, machine.describe()
    result.settings = {
        "cases": [Case("countdown", Runtime("c", "gcc"), 1, 1).data()],
        "traces": None,
    }
    monkeypatch.setattr(series, "choose", lambda *_: ([Runtime("c", "clang")], {}))
    with pytest.raises(UserError, match="cannot go on: c was gcc, and is clang"):
        series.cases_from(result, tmp_path)
    monkeypatch.setattr(series, "choose", lambda *_: ([], {}))
    with pytest.raises(UserError, match="c was gcc, and is no longer there"):
        series.cases_from(result, tmp_path)
    result.settings = {}
    with pytest.raises(UserError, match="does not say what is left to run"):
        series.cases_from(result, tmp_path)
    result.machine = {"processor": "another"}
    with pytest.raises(UserError, match="it was begun on another machine"):
        series.cases_from(result, tmp_path)
    result.deconvoy = "0.0.1"
    with pytest.raises(UserError, match=r"it was begun by deconvoy 0\.0\.1"):
        series.cases_from(result, tmp_path)


def test_two_do_not_write_one_file(tmp_path: Path) -> None:
    place = tmp_path / "result.jsonl"
    with Journal(a_result(), place) as journal:
        with pytest.raises(UserError, match="another bench writes it"):
            Journal(a_result(), place)
        journal.take(run=a_run(0))
    assert len(load(place).runs) == 1
    Journal(a_result(), place).close()


@pytest.mark.parametrize(
    "text",
    [
        "import os; os.write(1, bytes([255, 254, 10]))",
        "print('{\"elapsed_s\": 0}')",
        "print('{\"elapsed_s\": NaN}')",
        "print('{}'); import sys; sys.exit(3)",
        "import os; os.close(1)",
    ],
)
def test_whatever_a_program_does_costs_one_cell(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PATIENCE_S", 0.0)
    monkeypatch.setattr(Runtime, "command", lambda *_: [sys.executable, "-c", text])
    one = Runtime("one", "", python=sys.executable)
    cases = [
        Case("countdown", one, 1, 1, mode="sequential"),
        Case("messaging", one, 0, 1, mode="thread"),
        Case("messaging", one, 1, 1, mode="thread"),
        Case("respond", one, 1, 1, mode="thread"),
    ]
    result = series.new_result([one], {}, {"seed": 1, "rounds": 2})
    series.execute(result, cases, tmp_path / "r.jsonl", quiet_console())
    assert not result.runs
    told = result.failed.keys() | result.skipped.keys()
    assert all(case.name in told or case.kind in told for case in cases)


def test_an_interrupted_series_says_how_to_go_on(deconvoy: Deconvoy, tmp_path: Path) -> None:
    place = tmp_path / "result.jsonl"
    options = ["--runtime", "c", "--work", "1000", "--runs", "300", "--mode", "sequential"]
    command = [sys.executable, "-m", "deconvoy", "bench", "countdown", *options, "-o", str(place)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not place.exists() or place.read_text().count("\n") < 3:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert f"to go on: deconvoy bench --resume {place}" in said.replace("\n", " ")
    kept = len(load(place).runs)
    # Less is left to do.
    data = place.read_text().splitlines(keepends=True)
    first = json.loads(data[0])
    first["settings"]["rounds"] = kept + 2
    place.write_text("".join([json.dumps(first) + "\n", *data[1:]]))
    done = deconvoy("bench", "--resume", place)
    assert done.returncode == 0
    assert f"{kept + 2} runs, {kept + 2} of each of 1 case; {kept} are there" in done.stderr
    assert len(load(place).runs) == kept + 2
    done = deconvoy("bench", "--resume", place, "--runs", "3")
    assert done.returncode == 2
    assert "--resume goes on with what its file says" in done.stderr


TAKEN_BY_ANOTHER = """
import os, signal, threading
from deconvoy.bench.guard import signals_as_interrupts
told, _ = os.pipe()
def other():
    signal.pthread_kill(threading.get_ident(), {number})
with signals_as_interrupts():
    # It takes the signal when the main thread reads, or is about to: 200 times, whichever it is.
    for _ in range(200):
        try:
            threading.Thread(target=other).start()
            os.read(told, 1)
        except KeyboardInterrupt:
            pass
print("ended")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_another_thread_has_taken_ends_a_read(number: signal.Signals) -> None:
    """The kernel chooses the thread; without more the main one would read for ever."""
    command = [sys.executable, "-c", TAKEN_BY_ANOTHER.format(number=int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_goes_on_when_the_bench_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    options = ["--runtime", "c", "--work", str(10**15), "--mode", "fork", "--workers", "2"]
    command = [sys.executable, "-m", "deconvoy", "bench", "countdown", *options, "-o", "r.jsonl"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=tmp_path, stdout=quiet, stderr=quiet)
    begun = psutil.Process(process.pid)
    # The guard, the program, and its two children.
    while len(several := begun.children(recursive=True)) < 4:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    expected = {signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}
    assert process.wait() == expected.get(number, 128 + number)
    _, alive = psutil.wait_procs(several, timeout=60)
    assert not alive
    assert load(tmp_path / "r.jsonl").runs == []
