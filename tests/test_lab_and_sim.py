"""The lab and the simulator as runtimes of the bench, and the search: by the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from commandline import Deconvoy
from deconvoy import calibration, mixes, search
from deconvoy._native import check_costs, check_mix, cost_presets, replay
from deconvoy.bench.simulated import (
    Simulation,
    costs_named,
    countdown_mix,
    messaging_mix,
    repeat_command,
)
from hypothesis import given
from hypothesis import strategies as st

DESIGNS = ["adaptive", "priority", "timeout", "timer", "mutex", "fifo", "ticks"]


def cells(deconvoy: Deconvoy, *arguments: str | Path) -> dict[tuple[str, str, int], Any]:
    done = deconvoy("bench", *arguments, "--runs", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["skipped"] == {}
    return {(one["scenario"], one["runtime"], one["workers"]): one for one in found["cells"]}


def test_every_design_counts_down_in_the_lab_and_in_the_simulator(deconvoy: Deconvoy) -> None:
    runtimes = [*(f"lab:{name}" for name in DESIGNS), *(f"sim:{name}@4" for name in DESIGNS)]
    runtimes += ["lab:std", "lab:parking_lot_fair:100", "lab:pthread:1ms", "sim:timer:1ms@8/2010"]
    options = [part for name in runtimes for part in ("--runtime", name)]
    found = cells(deconvoy, "countdown", *options, "--work", "20000", "--workers", "1,2")
    assert {key[1:] for key in found} == {(name, count) for name in runtimes for count in (1, 2)}
    assert all(one["estimates"]["elapsed_s"]["median"] > 0 for one in found.values())


def test_messages_in_the_lab_and_in_the_simulator(deconvoy: Deconvoy, tmp_path: Path) -> None:
    """Each leaves a trace that follows from its policy."""
    options = ["--traces", tmp_path / "traces", "--work", "30", "--workers", "1"]
    runtimes = ["lab:timeout+trace", "sim:timeout@2+trace"]
    found = cells(
        deconvoy,
        "messaging",
        *options,
        *(part for name in runtimes for part in ("--runtime", name)),
    )
    for name in runtimes:
        estimates = found["messaging", name, 1]["estimates"]
        assert estimates["messages"]["median"] == 30
        assert estimates["p50_ns"]["median"] > 1_000_000, "a convoy"
    traces = sorted((tmp_path / "traces").iterdir())
    assert len(traces) == 2
    for trace in traces:
        _, actions, contended = replay(trace)
        assert actions > 20 and contended > 20


def test_the_same_seed_gives_the_same_simulation(deconvoy: Deconvoy) -> None:
    seeds = [("--seed", "7"), ("--seed", "7"), ("--seed", "8")]
    runs = [
        cells(deconvoy, "messaging", "--runtime", "sim:adaptive@4", "--work", "50", *seed)
        for seed in seeds
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_the_command_that_repeats_a_run_is_one(deconvoy: Deconvoy) -> None:
    command = repeat_command("messaging", "sim:priority:io-*=3@2", 1, 5, 42)
    words = shlex.split(command)
    assert words[0] == "deconvoy"
    assert deconvoy(*words[1:], "--json").returncode == 0


def test_what_starves_is_cut_off_and_says_how_far_it_came() -> None:
    outcome = Simulation("mutex", 8, "2010").run(messaging_mix(1, 1000, 5), seed=1)
    client = outcome["groups"][-1]
    assert client["ended_ns"] == 0 and client["rounds"] < 100


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--runtime", "sim:adaptive"], "say on how many cores, as in sim:adaptive@4"),
        (["--runtime", "sim:adaptive@0"], "cores must be from 1 to 1024"),
        (["--runtime", "sim:adaptive@-1"], "cores must be from 1 to 1024"),
        (["--runtime", "sim:adaptive@2000"], "cores must be from 1 to 1024"),
        (["--runtime", "sim:adaptive@2/1999"], "no costs '1999'; there are vm, server, 2010"),
        (["--runtime", "sim:unfair@2"], 'no policy "unfair"; there are adaptive'),
        (["--runtime", "sim:timer:-1ms@2"], '"-1ms" is not a time'),
        (["--runtime", "lab:unfair"], "or, without a policy, std, parking_lot"),
        (["--runtime", "lab:std:never"], '"never" says not when to give way'),
        (["--seed", "-1"], "-1 is not in the range"),
    ],
)
def test_a_mistake_is_one_line(deconvoy: Deconvoy, arguments: list[str], says: str) -> None:
    done = deconvoy("bench", "countdown", *arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and says in done.stderr, done.stderr
    assert done.stdout == ""


def test_a_mix_that_makes_no_sense_is_one_line(deconvoy: Deconvoy, tmp_path: Path) -> None:
    for text, says in [
        ("threads = []", "a mix needs threads"),
        ('[[threads]]\nname = "a"\nloop = [{ block = { gamma = "1ms" } }]', "no distribution"),
        ('[[threads]]\nname = "a"\nloop = [{ block = "-1ms" }]', '"-1ms" is not a time'),
    ]:
        path = tmp_path / "mix.toml"
        path.write_text(text)
        done = deconvoy("policies", "search", "--mix", path)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1 and says in done.stderr, done.stderr
    done = deconvoy("policies", "search", "--mix", "nothing")
    assert done.returncode == 2 and "no mix 'nothing', and no such file" in done.stderr
    done = deconvoy("policies", "search", "--cores", "0,2")
    assert done.returncode == 2 and "not a list of counts from 1 to 1024" in done.stderr


def test_the_workloads_of_the_project_can_be_run() -> None:
    assert len(mixes.names()) >= 10
    for name in mixes.names():
        assert check_mix(mixes.load(name)) > 0
    for name, text in cost_presets():
        assert json.loads(check_costs(text)), name
    assert check_mix(countdown_mix(3, 1000, 2.0)) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("instruction_ns = 0", "instruction_ns must be more than 0"),
        ("wake_ns = -5", "from 0 to 4000000000 nanoseconds"),
        ("wake_ns = [5, 3]", "quantiles go up from the least"),
        ("wakes_ns = 5", "there is no `wakes_ns`"),
        ("[scheduler]\ntick_ns = 0", "tick_ns and check_ns must be more than 0"),
    ],
)
def test_costs_that_make_no_sense_are_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_costs(text)


def test_what_was_calibrated_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deconvoy: Deconvoy
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = deconvoy("doctor", "--calibrate", "--json", env={"XDG_DATA_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["costs_ns"]
    kept = json.loads(check_costs(costs_named("")))
    assert kept["spin_ns"] == round(measured["spin_ns"][0])
    assert all(min(values) >= 0 for values in measured.values())
    calibration.path().write_text("spin_ns = 'x'")
    broken = deconvoy(
        *("bench", "countdown", "--runtime", "sim:adaptive@2"), env={"XDG_DATA_HOME": str(tmp_path)}
    )
    assert broken.returncode == 2 and "deconvoy doctor --calibrate measures anew" in broken.stderr


def test_a_search_finds_a_front(deconvoy: Deconvoy, tmp_path: Path) -> None:
    out = tmp_path / "search.jsonl"
    options = ("--mix", "echo-1", "--mix", "cpu-8", "--cores", "2", "--costs", "vm", "--json")
    options += ("--population", "4", "--generations", "1", "--runs", "0")
    command = ("policies", "search", *options)
    done = deconvoy(*command, "-o", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == len(search.rivals()) + 8
    assert {one["policy"] for one in found["front"]} <= {one["policy"] for one in lines}
    assert found["winner"]["policy"].startswith("adaptive")
    again = deconvoy(*command, "-o", out)
    assert again.returncode == 2 and "--force replaces it" in again.stderr
    assert json.loads(deconvoy(*command).stdout) == found, "the same seed, the same front"


figures = st.builds(
    search.Figures,
    wait_p99_ns=st.sampled_from([1e3, 1e4, 1e6]),
    kept=st.sampled_from([0.9, 0.95, 1.0]),
    jain=st.sampled_from([0.5, 1.0]),
    longest_wait_ns=st.sampled_from([1e6, 1e9]),
)


@given(st.lists(figures, min_size=1, max_size=20))
def test_a_front_beats_all_that_is_not_in_it(found: list[search.Figures]) -> None:
    candidates = [search.Candidate(f"adaptive:{at}", one) for at, one in enumerate(found)]
    best = search.front(candidates)
    for one in candidates:
        beaten = any(search.dominates(other.figures, one.figures) for other in candidates)
        same = any(other.figures.costs() == one.figures.costs() for other in best)
        assert same != beaten
    default = candidates[0]
    chosen = search.winner(best, default).figures
    assert chosen.wait_p99_ns <= search.WAIT_WITHIN * default.figures.wait_p99_ns
    assert chosen.kept >= default.figures.kept - search.KEPT_WITHIN


@given(st.lists(st.floats(0, 1), min_size=len(search.SPACE), max_size=len(search.SPACE)))
def test_every_point_is_a_policy_or_none(point: list[float]) -> None:
    from deconvoy._native import check_policy

    policy = search.policy_at(point)
    if policy is not None:
        check_policy(policy)
