"""The bench without a clock: order, repetition, statistics, result files, verdicts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from commandline import Deconvoy
from deconvoy.bench.machine import Watch
from deconvoy.bench.plan import REPEATS, measure, order
from deconvoy.bench.results import Result, Run
from deconvoy.bench.runtimes import Runtime, choose
from deconvoy.bench.scenario import Case
from deconvoy.bench.series import Sayer
from deconvoy.bench.stats import estimate, jain, quantiles
from deconvoy.bench.summary import Key, cells, dominated_by, dominates
from deconvoy.bench.table import published_table
from deconvoy.errors import UserError
from deconvoy.output import console
from hypothesis import example, given, settings
from hypothesis import strategies as st

C = Runtime("c", "")
CASES = [Case("messaging", C, workers, 10) for workers in range(6)]


def test_each_round_has_every_case_once_in_an_order_of_its_own() -> None:
    made = list(order(CASES, rounds=8, seed=1))
    rounds = [tuple(made[start : start + 6]) for start in range(0, len(made), 6)]
    assert all(Counter(one) == Counter(CASES) for one in rounds)
    assert len(set(rounds)) > 4
    assert made == list(order(CASES, rounds=8, seed=1))


class FakeWatch(Watch):
    """A watch that has seen what it is told."""

    def __init__(self, foreign: float) -> None:
        super().__init__(0, 0, 0)
        self.foreign = foreign

    def foreign_cores(self) -> float:
        return self.foreign


def measured(loads: list[float], quiet: bool = True) -> tuple[Run, int]:
    executed: list[Case] = []
    watches = iter([FakeWatch(load) for load in loads])

    def execute(case: Case) -> dict[str, float]:
        executed.append(case)
        return {"elapsed_s": float(len(executed))}

    run = measure(CASES[0], 7, execute, watch=lambda: next(watches), quiet=lambda: quiet)
    return run, len(executed)


def test_a_quiet_run_counts() -> None:
    run, executed = measured([0.0])
    assert (run.quiet, executed, run.order) == (True, 1, 7)


def test_a_run_beside_other_work_is_repeated() -> None:
    run, executed = measured([1.0, 0.1])
    assert (run.quiet, executed, run.values["elapsed_s"]) == (True, 2, 2.0)


def test_a_run_that_is_never_quiet_is_kept_and_marked() -> None:
    run, executed = measured([1.0] * (REPEATS + 1))
    assert (run.quiet, executed, run.foreign_cores) == (False, REPEATS + 1, 1.0)


def test_a_machine_that_is_never_quiet_is_not_tried_again() -> None:
    run, executed = measured([0.0], quiet=False)
    assert (run.quiet, executed) == (False, 1)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=30))
@example([1.0, 1.0, 908569.1219310545])
def test_an_interval_holds_its_median(samples: list[float]) -> None:
    found = estimate(samples)
    assert min(samples) <= found.low <= found.median <= found.high <= max(samples)
    assert found == estimate(samples)


def test_estimates_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        estimate([])


def test_quantiles_are_samples() -> None:
    samples = [float(n) for n in range(1, 101)]
    assert quantiles(samples, (0.5, 0.99, 1.0)) == [50, 99, 100]


def test_jain() -> None:
    assert jain([2.0, 2.0]) == pytest.approx(1)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


def a_result(runs: list[Run]) -> Result:
    return Result(
        command=["deconvoy"],
        created_unix_s=0.0,
        deconvoy="0",
        machine={},
        settings={},
        runtimes={"cpython3.11": "", "cpython3.11+adaptive": ""},
        runs=runs,
    )


def a_run(runtime: str, latency_ns: int, beside: float, workers: int = 1) -> Run:
    values = {"latency_ns": [latency_ns] * 10, "beside_per_s": beside, "elapsed_s": 1.0}
    return Run(runtime, "messaging", workers, 0, values, 0.0, True)


def test_domination_needs_both_and_a_clear_difference() -> None:
    points = {
        name: cells(a_result([a_run("cpython3.11", latency, beside)] * 3))
        for name, latency, beside in (
            ("fast", 100, 9.0),
            ("slow", 500, 9.0),
            ("greedy", 500, 10.0),
        )
    }
    key = Key("messaging", "cpython3.11", 1, None)
    fast, slow, greedy = (points[name][key] for name in ("fast", "slow", "greedy"))
    assert dominates(fast, slow)
    assert dominates(greedy, slow)
    assert not dominates(fast, greedy)
    assert not dominates(greedy, fast)
    assert not dominates(fast, fast)
    assert dominated_by(slow, [fast, slow, greedy]) == [fast, greedy]


def test_an_unknown_runtime_is_named() -> None:
    with pytest.raises(UserError, match="no runtime 'cobol' on this machine; there are"):
        choose(["cobol"])


def test_an_unknown_policy_of_a_runtime_is_named() -> None:
    with pytest.raises(UserError, match="no policy"):
        choose(["cpython*+fair"])


def test_a_runtime_can_be_traced(tmp_path: Path) -> None:
    mine = f"cpython{sys.version_info.major}.{sys.version_info.minor}"
    chosen, _ = choose([f"{mine}+adaptive+trace", f"{mine}+stock+trace", f"{mine}+adaptive"])
    assert [(runtime.policy, runtime.traced) for runtime in chosen] == [
        ("adaptive", True),
        ("stock", True),
        ("adaptive", False),
    ]
    first, _, untraced = (runtime.environment() for runtime in chosen)
    assert "DECONVOY_TRACE" not in untraced
    left = Path(first["DECONVOY_TRACE"], "left.trace")
    left.touch()
    assert chosen[1].environment()["DECONVOY_TRACE"] == first["DECONVOY_TRACE"]
    assert not left.exists()


def test_published_figures_have_a_table() -> None:
    for scenario in ("messaging", "countdown"):
        table = published_table(scenario)
        assert table is not None
        assert table.row_count >= 5


def test_a_result_is_not_replaced(deconvoy: Deconvoy, tmp_path: Path) -> None:
    place = tmp_path / "result.json"
    place.write_text("precious")
    done = deconvoy("bench", "countdown", "-o", place)
    assert done.returncode == 2
    assert "--force replaces it" in done.stderr
    assert place.read_text() == "precious"


def test_a_long_series_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    sayer = Sayer(12, 4, console(stderr=True), now_s=100.0)
    for count in range(1, 13):
        sayer.done(count, now_s=100.0 + 25 * count)
    assert capsys.readouterr().err.splitlines() == [
        "deconvoy: 1 of 12 runs done, about 5 min to go",
        "deconvoy: 4 of 12 runs done, about 3 min to go",
        "deconvoy: 7 of 12 runs done, about 2 min to go",
        "deconvoy: 10 of 12 runs done, about 50 s to go",
    ]


def test_there_can_be_thousands_of_requests(deconvoy: Deconvoy) -> None:
    """More than threads that anybody has."""
    done = deconvoy("bench", "respond", "--workers", "10000", "--mode", "nothing")
    assert "'nothing' is not one of" in done.stderr
    done = deconvoy("bench", "respond", "--workers", "100001")
    assert done.returncode == 2 and "from 0 to 100000" in done.stderr


def test_what_can_be_run_is_listed(deconvoy: Deconvoy) -> None:
    done = deconvoy("bench", "--list")
    assert done.returncode == 0
    assert "respond-sockets" in done.stdout and "runtimes here: " in done.stdout
    data = json.loads(deconvoy("bench", "--list", "--json").stdout)
    by_name = {one["scenario"]: one for one in data["scenarios"]}
    assert by_name["countdown"]["modes"] == ["sequential", "thread", "fork"]
    mine = f"cpython{sys.version_info.major}.{sys.version_info.minor}"
    assert mine in by_name["fib"]["runtimes"]


def test_a_folder_that_is_not_there_is_not_made_a_file(deconvoy: Deconvoy, tmp_path: Path) -> None:
    done = deconvoy("bench", "countdown", "-o", f"{tmp_path}/missing/")
    assert done.returncode == 2 and "make it first" in done.stderr
    assert not (tmp_path / "missing").exists()
