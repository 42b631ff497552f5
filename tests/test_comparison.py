"""What is said of two results, and of how times fall with workers: without a clock."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commandline import Deconvoy
from deconvoy.bench.comparison import Verdict, changes_of, difference
from deconvoy.bench.results import Result, Run
from deconvoy.bench.scaling import law, scalings, speedup, terms
from deconvoy.bench.summary import cells

RUNS = 10
NOISE = 0.03


def result(times: dict[str, list[float]], mode: str = "thread", workers: int = 2) -> Result:
    runs = [
        Run(name, "countdown", workers, order, {"elapsed_s": took}, 0.0, True, mode=mode)
        for name, several in times.items()
        for order, took in enumerate(several)
    ]
    return Result([], 0.0, "0", {}, {}, dict.fromkeys(times, ""), runs)


def verdict(seed: int, factor: float) -> Verdict:
    generator = np.random.default_rng(seed)
    before, after = generator.normal(1, NOISE, (2, RUNS))
    sides = (result({"c": list(times)}) for times in (before, after * factor))
    (change,) = changes_of(*sides)
    return change.verdict


def test_a_difference_of_five_in_a_hundred_is_found() -> None:
    assert [verdict(seed, 1.05) for seed in range(20)].count(Verdict.SLOWER) >= 19


def test_what_does_not_differ_is_not_said_to() -> None:
    differing = [verdict(seed, 1.0) for seed in range(20)]
    assert differing.count(Verdict.SAME) >= 19


def test_the_rates_of_both_mistakes() -> None:
    """What twenty trials cannot tell: at 5 in 100 false ones, even Student's test, which knows that
    the noise is normal, finds no more than 93 of 100 that are slower, 95 that are faster."""
    for factor, expected in ((1.05, Verdict.SLOWER), (0.95, Verdict.FASTER)):
        found = [verdict(seed, factor) for seed in range(1000, 1200)].count(expected)
        assert found / 200 > 0.86
    false = 200 - [verdict(seed, 1.0) for seed in range(1000, 1200)].count(Verdict.SAME)
    assert false / 200 < 0.09


def test_few_runs_tell_nothing() -> None:
    sides = (result({"c": [took] * 2}) for took in (1.0, 2.0))
    (change,) = changes_of(*sides)
    assert change.verdict is Verdict.TOO_FEW
    assert change.ratio.median == pytest.approx(2)


def test_without_noise_all_is_known() -> None:
    same, p_value = difference([1.0] * 5, [1.0] * 5)
    assert (same.low, same.high, p_value) == (1, 1, 1)
    twice, p_value = difference([1.0] * 5, [2.0] * 5)
    assert (twice.median, p_value) == (pytest.approx(2), 0)


def test_one_in_many_is_not_taken_for_a_change() -> None:
    """A hundred cells without a difference, and one with: chance alone is accounted for."""
    generator = np.random.default_rng(3)
    names = [f"runtime{number}" for number in range(100)]
    before, after = (
        {name: list(generator.normal(1, NOISE, RUNS)) for name in names} for _ in range(2)
    )
    before["slow"] = list(generator.normal(1, NOISE, RUNS))
    after["slow"] = [took * 1.3 for took in before["slow"]]
    changes = changes_of(result(before), result(after))
    told = [one.key.runtime for one in changes if one.verdict is not Verdict.SAME]
    assert told == ["slow"]


def test_compare_says_what_changed(deconvoy: Deconvoy, tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    one, two = generator.normal(1, 0.01, (2, RUNS))
    before = result({"c": list(one), "go1.26": list(two)})
    after = result({"c": list(one * 1.5), "ruby3.1": list(two)})
    after.machine = {"processor": "another"}
    before.runtimes["c"] = "gcc 12"
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for path, each in zip(paths, (before, after), strict=True):
        each.save(path)
    done = deconvoy("bench", "compare", *paths)
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(" countdown")]
    assert line.endswith("slower") and "1.500x" in line
    assert "1 slower" in done.stdout
    assert "only in A: countdown, go1.26, thread, x 2" in done.stdout
    assert "only in B: countdown, ruby3.1, thread, x 2" in done.stdout
    assert "from different machines" in done.stdout
    assert "c was gcc 12, and is" in done.stdout
    data = json.loads(deconvoy("bench", "compare", *paths, "--json").stdout)
    assert [change["verdict"] for change in data["changes"]] == ["slower"]
    done = deconvoy("bench", "compare", *paths, "--metric", "cows")
    assert done.returncode == 2
    assert "no cows above 0 in both; there are elapsed_s" in done.stderr


def test_two_results_with_nothing_in_common(deconvoy: Deconvoy, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for path, name in zip(paths, ("c", "go1.26"), strict=True):
        result({name: [1.0] * RUNS}).save(path)
    done = deconvoy("bench", "compare", *paths)
    assert done.returncode == 2
    assert "no cell is in both results" in done.stderr


COUNTS = np.array([1.0, 2, 4, 8, 16])


@pytest.mark.parametrize(("contention", "coherency"), [(0.0, 0.0), (0.2, 0.0), (0.05, 0.01)])
def test_the_terms_of_a_law_are_found(contention: float, coherency: float) -> None:
    times = 3.0 / np.array([speedup(count, contention, coherency) for count in COUNTS])
    ((one, serial, cost),) = terms(COUNTS, times[None], coherent=True)
    assert (one, serial, cost) == pytest.approx((3.0, contention, coherency), abs=1e-6)


def test_the_terms_are_those_of_least_squares_that_are_not_below_0() -> None:
    from scipy.optimize import nnls

    times = np.random.default_rng(1).lognormal(0, 1, (200, len(COUNTS)))
    found = terms(COUNTS, times, coherent=True)
    columns = np.stack([1 / COUNTS, np.ones_like(COUNTS), COUNTS - 1], axis=1)
    for row, (one, serial, cost) in zip(times, found, strict=True):
        parallel, alone, pairs = nnls(columns / row[:, None], np.ones(len(row)))[0]
        assert (one, one * serial, one * cost) == pytest.approx(
            (parallel + alone, alone, pairs), rel=1e-6, abs=1e-9
        )
    assert (found[:, 1] <= 1).all()


def test_intervals_hold_the_terms_of_noisy_times() -> None:
    held = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        samples = {
            int(count): list(generator.normal(1, 0.02, 9) * 3 / speedup(count, 0.1, 0.01))
            for count in COUNTS
        }
        found = law(samples, coherent=True, seed=seed)
        held += found.contention.low <= 0.1 <= found.contention.high
    # Of 95 in 100, as far as forty tell; a bootstrap of nine runs is a bit narrow.
    assert held >= 32


def test_what_scales_is_told_by_three_counts() -> None:
    several = [
        *result({"c": [8.0, 8.1, 7.9]}, "sequential", 1).runs,
        *result({"c": [4.0, 4.1, 3.9]}, "thread", 2).runs,
        *result({"c": [2.0, 2.1, 1.9]}, "thread", 4).runs,
        *result({"go1.26": [2.0]}, "thread", 4).runs,
    ]
    whole = Result([], 0.0, "0", {}, {}, {"c": "", "go1.26": ""}, several)
    (one,) = scalings(whole)
    assert (one.key.runtime, one.key.mode, one.counts) == ("c", "thread", (1, 2, 4))
    assert one.amdahl.contention.median == pytest.approx(0, abs=0.01)
    assert one.amdahl.speedup.median == pytest.approx(64, rel=0.2)
    assert cells(whole)
