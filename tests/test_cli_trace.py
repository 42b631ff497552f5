"""`trace`, `report` and `export` on real programs."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from commandline import Deconvoy

# Two threads that take turns and compute meanwhile: each has to wait for the GIL, and often.
TAKE_TURNS = """
import threading, sys
turns = [1]
def take_turns(me):
    while len(turns) < 40:
        if turns[-1] != me:
            turns.append(me)
threads = [threading.Thread(target=take_turns, args=(me,), name="turn-%d" % me) for me in (1, 2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def report(deconvoy: Deconvoy, *arguments: str) -> list[dict[str, Any]]:
    done = deconvoy("report", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["version"] == 1
    processes: list[dict[str, Any]] = data["processes"]
    return processes


@pytest.mark.parametrize("policy", ["stock", "adaptive", "timeout", "priority:turn-*=1"])
def test_a_trace_shows_who_waited(deconvoy: Deconvoy, python: str, policy: str) -> None:
    arguments = ["-o", "it", "--policy", policy, "--size", "1M", "--", python, "-c", TAKE_TURNS]
    done = deconvoy("trace", *arguments)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "deconvoy report it\n" in done.stderr
    (process,) = report(deconvoy, "it")
    assert process["process"]["policy"] == policy
    assert process["process"]["command"] == [python, "-c", TAKE_TURNS]
    waits = sorted(thread["waits"] for thread in process["threads"])
    assert len(waits) >= 3
    # Each of the two had some twenty turns, and waited before all of them.
    assert waits[-2] >= 15
    assert process["findings"]


def test_the_tables_are_plain_when_piped(deconvoy: Deconvoy, python: str) -> None:
    deconvoy("trace", "-o", "it", "--", python, "-c", TAKE_TURNS)
    done = deconvoy("report", "it")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert not [line for line in lines if line.endswith(" ")]
    # One line a thread, however long: nothing is wrapped or cut.
    assert "…" not in "".join(line for line in lines if "turn-" in line)
    titles = [place for place, line in enumerate(lines) if line == "findings"]
    (findings,) = titles
    assert lines[findings + 1].startswith("1. ")


def test_the_default_folder_is_in_the_current_one(
    deconvoy: Deconvoy, tmp_path: Path, python: str
) -> None:
    link = tmp_path / "my python"
    link.symlink_to(python)
    assert deconvoy("trace", "--", link, "-c", "pass").returncode == 0
    (folder,) = tmp_path.glob("deconvoy-my_python-*.deconvoy")
    assert len(list(folder.glob("*.trace"))) == 1


def test_an_empty_folder_will_do(deconvoy: Deconvoy, tmp_path: Path, python: str) -> None:
    (tmp_path / "it").mkdir()
    assert deconvoy("trace", "-o", "it", "--", python, "-c", "pass").returncode == 0
    assert len(report(deconvoy, "it")) == 1


def test_each_process_has_a_trace(deconvoy: Deconvoy, python: str) -> None:
    fork = "import os\nfor _ in range(3):\n if os.fork() == 0: os._exit(0)\n os.wait()\n"
    fork += "print(os.getpid())"
    done = deconvoy("trace", "-o", "it", "--", "sh", "-c", 'exec "$0" "$@"', python, "-c", fork)
    parent = int(done.stdout)
    processes = report(deconvoy, "it")
    assert processes[0]["process"]["pid"] == parent
    assert {process["process"]["parent_pid"] for process in processes[1:]} <= {parent}
    (one,) = report(deconvoy, "it", "--process", str(parent))
    assert one["path"] == processes[0]["path"]


def test_a_damaged_trace_does_not_hide_the_others(
    deconvoy: Deconvoy, tmp_path: Path, python: str
) -> None:
    deconvoy("trace", "-o", "it", "--", python, "-c", TAKE_TURNS)
    (tmp_path / "it/1-1.trace").write_bytes(b"damaged")
    done = deconvoy("export", "it", "-o", "it.json")
    assert done.returncode == 2
    assert "deconvoy: it/1-1.trace: " in done.stderr
    assert "turn-1" in (tmp_path / "it.json").read_text()
    for options, shown in ([], "turn-1"), (["--json"], '"turn-1"'):
        done = deconvoy("report", "it", *options)
        assert done.returncode == 2
        assert shown in done.stdout
        assert done.stderr.startswith("deconvoy: it/1-1.trace: ")
        assert done.stderr.count("\n") == 1


def test_many_threads_of_one_kind_are_one_row(deconvoy: Deconvoy, python: str) -> None:
    many = (
        "import threading\n"
        "for n in range(20):\n"
        "    t = threading.Thread(target=print, name=f'job-{n}'); t.start(); t.join()\n"
    )
    deconvoy("trace", "-o", "it", "--", python, "-c", many)
    table = deconvoy("report", "it").stdout
    assert '20 threads "job-*"' in table
    assert "job-7" not in table
    (process,) = report(deconvoy, "it")
    assert sum(thread["name"].startswith("job-") for thread in process["threads"]) == 20
    assert max(thread["count"] for thread in process["kinds"]) == 20


def test_a_rule_for_a_thread_that_is_not_there_is_named(deconvoy: Deconvoy, python: str) -> None:
    policy = "priority:trun-*=5,turn-1=3"
    # No turns: the thread that the rule prefers would keep the other from its own.
    program = TAKE_TURNS.replace("target=take_turns, args=(me,)", "target=sum, args=([me],)")
    done = deconvoy("trace", "-o", "it", "--policy", policy, "--", python, "-c", program)
    assert "deconvoy: no thread fits 'trun-*' of the policy; there are " in done.stderr
    assert "fits 'turn-1'" not in done.stderr
    assert "note: no thread fits 'trun-*' of the policy" in deconvoy("report", "it").stdout


def test_a_program_without_a_gil_leaves_an_explanation(deconvoy: Deconvoy, tmp_path: Path) -> None:
    done = deconvoy("trace", "-o", "it", "--", "ls", "/no/such/file")
    assert done.returncode == 2
    assert done.stderr.startswith("deconvoy: ls: neither a CPython nor a Ruby; it runs as it is\n")
    assert not (tmp_path / "it").exists()
    # What was there before stays there.
    (tmp_path / "it").mkdir()
    assert deconvoy("trace", "-o", "it", "--", "ls").returncode == 0
    assert (tmp_path / "it").exists()


def test_what_a_shell_leaves_running_is_traced(
    deconvoy: Deconvoy, tmp_path: Path, python: str
) -> None:
    # It goes on when the shell has ended.
    later = f'read line < fifo; "{python}" -c pass; echo done > fifo2'
    os.mkfifo(tmp_path / "fifo")
    os.mkfifo(tmp_path / "fifo2")
    daemon = ["setsid", "sh", "-c", f"({later}) < /dev/null > /dev/null 2>&1 &"]
    assert deconvoy("trace", "-o", "it", "--", *daemon).returncode == 0
    (tmp_path / "fifo").write_text("go\n")
    assert (tmp_path / "fifo2").read_text() == "done\n"
    assert len(report(deconvoy, "it")) == 1


def test_quiet(deconvoy: Deconvoy, python: str) -> None:
    done = deconvoy("trace", "--quiet", "--", python, "-c", "print(1)")
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("name", ["it.pftrace", "it.json"])
def test_export_writes_all_or_nothing(
    deconvoy: Deconvoy, tmp_path: Path, python: str, name: str
) -> None:
    deconvoy("trace", "-o", "it", "--", python, "-c", TAKE_TURNS)
    done = deconvoy("export", "it", "-o", name)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"deconvoy: {name}: 1 process; open it in ")
    written = (tmp_path / name).read_bytes()
    if name.endswith(".json"):
        assert "turn-1" in json.dumps(json.loads(written))
    else:
        assert b"turn-1" in written
    (tmp_path / name).write_text("old")
    assert deconvoy("export", "it", "-o", name, "--force").returncode == 0
    assert (tmp_path / name).read_bytes() == written
    assert sorted(os.listdir(tmp_path)) == ["it", name]


def test_export_of_several_processes_is_one_timeline(
    deconvoy: Deconvoy, tmp_path: Path, python: str
) -> None:
    fork = "import os; os.fork() or os._exit(0); os.wait()"
    deconvoy("trace", "-o", "it", "--", python, "-c", fork)
    pids = {one["process"]["pid"] for one in report(deconvoy, "it")}

    def exported(*options: str) -> list[dict[str, Any]]:
        done = deconvoy("export", "it", "-o", "-", "--format", "trace-event", *options)
        assert (done.returncode, done.stderr) == (0, "")
        events: list[dict[str, Any]] = json.loads(done.stdout)
        return events

    assert len(pids) == 2
    assert {event["pid"] for event in exported()} == pids
    assert all(event["ts"] >= 0 for event in exported() if "ts" in event)
    one = min(pids)
    assert {event["pid"] for event in exported("--process", str(one))} == {one}


def test_export_follows_a_link(deconvoy: Deconvoy, tmp_path: Path, python: str) -> None:
    deconvoy("trace", "-o", "it", "--", python, "-c", "pass")
    (tmp_path / "old.json").write_text("old")
    (tmp_path / "link.json").symlink_to("old.json")
    assert deconvoy("export", "it", "-o", "link.json").returncode == 2
    assert deconvoy("export", "it", "-o", "link.json", "--force").returncode == 0
    assert (tmp_path / "link.json").readlink() == Path("old.json")
    json.loads((tmp_path / "old.json").read_text())


@pytest.mark.parametrize("verb", ["run", "trace", "report", "export", "doctor", "policies"])
def test_help_has_an_example(deconvoy: Deconvoy, verb: str) -> None:
    done = deconvoy(verb, "--help")
    assert done.returncode == 0
    assert re.search(r"Examples?:\s+deconvoy ", done.stdout)
    assert done.stderr == ""


def test_policies(deconvoy: Deconvoy) -> None:
    names = [policy["name"] for policy in json.loads(deconvoy("policies", "--json").stdout)]
    assert {"adaptive", "priority", "timeout"} <= set(names)
    table = deconvoy("policies").stdout
    assert all(name in table for name in names)
    (slice_, *_) = json.loads(deconvoy("policies", "--json").stdout)[0]["options"]
    assert (slice_["name"], slice_["default"]) == ("slice", 5_000_000)
    assert "5.00 ms" in table


def test_doctor_tries_every_interpreter(deconvoy: Deconvoy, python: str) -> None:
    done = deconvoy("doctor", "--json", "--", "perl", "-e", "1")
    assert (done.returncode, done.stderr) == (1, "")
    data = json.loads(done.stdout)
    assert data["library"] == {"is_loadable": True, "why_not": None}
    assert data["command"]["why_not"]
    assert data["interpreters"]
    for found in data["interpreters"]:
        # What can be told from the file must be what comes of running it.
        assert found["is_served"] == (found["why_not"] is None), found
        version = [int(part) for part in found["version"].split(".")[:2]]
        expected = version >= [3, 8] and not found["is_free_threaded"]
        assert found["is_served"] == expected, found
    done = deconvoy("doctor", "--", python, "-c", "pass")
    assert done.returncode == 0
    assert python in done.stdout
    assert done.stdout.endswith("nothing speaks against it\n")
    done = deconvoy("doctor", "--", "sh", "-c", "exit")
    assert done.returncode == 0
    assert done.stdout.endswith("one that it starts is served\n")
