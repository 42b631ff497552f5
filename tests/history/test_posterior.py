"""The posterior as a function: what must hold of it whatever was measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
from deconvoy.history.changes import changes, false_alarms
from deconvoy.history.finder import channel
from deconvoy.history.posterior import Build, Posterior, noise_of
from hypothesis import given, settings
from hypothesis import strategies as st

LEAST = math.log(1.05)

# What the grid of levels may add or take.
GRID = 0.02

samples = st.lists(st.floats(-3, 3), min_size=1, max_size=5).map(tuple)
builds = st.lists(
    st.builds(Build, st.integers(0, 19), samples),
    min_size=1,
    max_size=8,
    unique_by=lambda one: one.position,
)
weights = st.lists(st.sampled_from([0.0, 1.0, 5.0]), min_size=20, max_size=20)


@settings(max_examples=60, deadline=None)
@given(builds, weights)
def test_it_is_a_distribution(several: list[Build], prior: list[float]) -> None:
    found = Posterior(prior, several, LEAST)
    assert found.mass.min() >= 0
    assert found.mass[0] == 0
    total = float(found.mass.sum()) + found.nothing
    assert total == pytest.approx(1, abs=1e-9)
    # What cannot be it is not it.
    assert all(found.mass[place] == 0 for place, weight in enumerate(prior) if weight == 0)


@settings(max_examples=30, deadline=None)
@given(builds, st.floats(-50, 50))
def test_the_unit_does_not_matter(several: list[Build], shift: float) -> None:
    prior = [1.0] * 20
    moved = [Build(b.position, tuple(one + shift for one in b.samples)) for b in several]
    one, other = Posterior(prior, several, LEAST), Posterior(prior, moved, LEAST)
    assert np.allclose(one.mass, other.mass, atol=GRID)
    assert one.nothing == pytest.approx(other.nothing, abs=GRID)


@settings(max_examples=30, deadline=None)
@given(builds)
def test_up_and_down_are_alike(several: list[Build]) -> None:
    prior = [1.0] * 20
    turned = [Build(b.position, tuple(-one for one in b.samples)) for b in several]
    one, other = Posterior(prior, several, LEAST), Posterior(prior, turned, LEAST)
    assert np.allclose(one.mass, other.mass, atol=GRID)


def test_between_two_builds_all_are_alike() -> None:
    found = Posterior([1.0] * 20, [Build(3, (0.0,) * 4), Build(9, (1.0, 1.02, 0.98))], LEAST)
    inside = found.mass[4:10]
    assert inside.sum() > 0.95
    assert np.allclose(inside, inside[0])


def test_few_runs_give_little_confidence() -> None:
    few = Posterior([1.0] * 3, [Build(0, (0.0,)), Build(2, (0.1,))], LEAST)
    many = Posterior([1.0] * 3, [Build(0, (0.0, 0.01) * 5), Build(2, (0.1, 0.11) * 5)], LEAST)
    assert few.nothing > 0.2
    # Two builds may differ a bit for no reason.
    assert many.nothing < 0.1


def test_the_interval_has_the_step() -> None:
    chosen = np.random.default_rng(1)
    inside = 0
    for _ in range(40):
        several = [
            Build(place, tuple(chosen.normal(0.2 if place >= 5 else 0.0, 0.05, 5)))
            for place in range(10)
        ]
        step = Posterior([1.0] * 10, several, LEAST).step
        inside += step.low <= 0.2 <= step.high
        assert step.low <= step.size <= step.high
    assert inside >= 34


def test_the_noise_is_that_of_runs_of_one_build() -> None:
    chosen = np.random.default_rng(2)
    several = [Build(n, tuple(chosen.normal(n, 0.05, 4))) for n in range(30)]
    assert noise_of(several, LEAST) == pytest.approx(0.05, rel=0.25)
    # Counts that are the same each time have some all the same.
    assert noise_of([Build(0, (1.0, 1.0, 1.0))], LEAST) > 0


def test_a_batch_tells_at_most_a_bit() -> None:
    sure = channel(np.array([0.5]), np.array([20.0]))
    assert sure[0] == pytest.approx(1.0, abs=1e-3)
    nothing = channel(np.array([0.5, 0.999999]), np.array([0.0, 3.0]))
    assert nothing[0] == pytest.approx(0.0, abs=1e-9) and nothing[1] < 1e-3


# All changes of a sweep.


def sweep(seed: int, count: int, steps: dict[int, float], noise: float = 0.05) -> list[Build]:
    chosen = np.random.default_rng(seed)
    level = np.zeros(count)
    for place, step in steps.items():
        level[place:] += step
    return [Build(n, tuple(chosen.normal(level[n], noise, 5))) for n in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_changes_that_take_one_another_back_are_found(seed: int) -> None:
    steps = {40: 0.2, 70: -0.2, 200: 0.1}
    found = changes(sweep(seed, 300, steps), [1.0] * 300, LEAST)
    assert [one.position for one in found] == list(steps)
    for one in found:
        assert one.first <= one.position <= one.last
        assert one.step.low <= steps[one.position] <= one.step.high or one.step.size != 0


def test_a_sweep_of_noise_has_no_changes() -> None:
    alarms = sum(bool(changes(sweep(seed, 64, {}), [1.0] * 64, LEAST)) for seed in range(40))
    assert alarms <= 2


def test_false_alarms_are_counted_on_the_numbers_themselves() -> None:
    several = sweep(1, 40, {20: 0.3})
    found = changes(several, [1.0] * 40, LEAST)
    assert false_alarms(several, found, LEAST) <= 0.05
    assert math.isnan(false_alarms(several[:3], [], LEAST))
