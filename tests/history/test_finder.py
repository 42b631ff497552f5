"""The finder on generated repositories and made-up samples: no builds, no clock."""

from __future__ import annotations

import math
import random
import shutil
import statistics
from collections import Counter
from pathlib import Path

import pytest
from deconvoy.history.finder import Finder
from deconvoy.history.fossil import Fossil
from deconvoy.history.git import Git
from deconvoy.history.repository import Repository
from deconvoy.history.verdict import Limits, Outcome, Verdict, Wish
from deconvoy.history.walk import Busy, Found, Search
from generator import Commit, fossil_repository, git_repository, history
from simulated import LEAST, World, mark_of, world

REVISIONS, REPOSITORIES, TRIALS = 1000, 5, 100


def git_world(folder: Path, seed: int) -> World:
    commits = history(seed, REVISIONS)
    names = git_repository(folder / f"git{seed}", commits)
    return world(commits, Git(folder / f"git{seed}"), names[1], "main")


def fossil_world(folder: Path, seed: int) -> World:
    commits = history(seed, REVISIONS)
    file = folder / f"{seed}.fossil"
    fossil_repository(file, commits)
    repository = Fossil(file, folder / "copies")
    return world(commits, repository, repository.oldest().id, "trunk")


@pytest.fixture(scope="module", params=["git", "fossil"])
def worlds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[World]:
    kind = request.param
    if shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed")
    make = git_world if kind == "git" else fossil_world
    return [make(tmp_path_factory.mktemp(kind), seed) for seed in range(REPOSITORIES)]


def names(found: Found) -> list[int]:
    return [mark_of(source) for source in found.innermost.named]


def test_a_change_on_a_merged_branch_is_found(worlds: list[World]) -> None:
    right, builds = 0, []
    outcomes: Counter[str] = Counter()
    for trial in range(TRIALS):
        one = worlds[trial % REPOSITORIES]
        culprit = random.Random(trial).choice(one.on_merged_branches())
        search, bench = one.search(trial, culprit, step=0.2, noise=0.05, broken=0.1)
        found = search.through(one.chain)
        outcomes[found.verdict.outcome.value] += 1
        right += found.verdict.outcome is Outcome.FOUND and culprit in names(found)
        builds.append(len(bench.builds))
    assert right >= 95, outcomes
    assert statistics.median(builds) <= 1.5 * math.log2(REVISIONS), builds


def test_where_nothing_has_changed_nothing_is_found(worlds: list[World]) -> None:
    outcomes: Counter[Outcome] = Counter()
    for trial in range(TRIALS):
        one = worlds[trial % REPOSITORIES]
        search, _ = one.search(trial, None, step=0.0, noise=0.05, broken=0.1)
        outcomes[search.through(one.chain).verdict.outcome] += 1
    assert outcomes[Outcome.NOTHING] >= 95, outcomes
    assert outcomes[Outcome.FOUND] == 0


# A line of revisions, and a finder that is told what was planted.


def carry_out(
    finder: Finder, level: list[float], noise: float, seed: int, broken: set[int] = frozenset()
) -> Verdict:
    chosen = random.Random(seed)
    for _ in range(1000):
        wish = finder.next()
        if isinstance(wish, Verdict):
            return wish
        assert wish.rounds > 0 and wish.positions
        bad = [position for position in wish.positions if position in broken]
        for position in bad:
            finder.cannot(position)
        for number in range(0 if bad else wish.rounds):
            for position in wish.positions if number % 2 == 0 else wish.positions[::-1]:
                value = level[position] * math.exp(chosen.gauss(0, noise))
                finder.measured(position, math.log(value))
    raise AssertionError("it never ends")


def line(count: int, at: int, step: float) -> list[float]:
    return [1.0 if position < at else 1 + step for position in range(count)]


def test_what_cannot_be_told_apart_is_named_together() -> None:
    finder = Finder([1.0] * 40, Limits(LEAST))
    verdict = carry_out(finder, line(40, 20, 0.3), 0.03, 1, broken={18, 19, 20, 21})
    assert verdict.outcome is Outcome.FOUND
    assert verdict.positions == (18, 19, 20, 21, 22)
    assert verdict.before == 17


def test_where_nothing_can_be_built_it_is_untestable() -> None:
    verdict = carry_out(
        Finder([1.0] * 20, Limits(LEAST)), line(20, 9, 0.3), 0.03, 1, set(range(20))
    )
    assert verdict.outcome is Outcome.UNTESTABLE
    assert "0 of 20" in verdict.why


def test_where_nothing_can_be_built_not_all_are_tried() -> None:
    finder = Finder([1.0] * 1000, Limits(LEAST))
    verdict = carry_out(finder, line(1000, 9, 0.3), 0.03, 1, set(range(1000)))
    assert verdict.outcome is Outcome.UNTESTABLE and "24 revisions were tried" in verdict.why
    assert len(finder.failed) == 24


def test_a_span_at_an_end_is_stepped_over_in_strides() -> None:
    finder = Finder([1.0] * 400, Limits(LEAST))
    verdict = carry_out(finder, line(400, 250, 0.3), 0.03, 1, broken=set(range(100)))
    assert verdict.outcome is Outcome.FOUND and verdict.positions == (250,)
    assert len(finder.failed) < 15


@pytest.mark.parametrize("seed", range(10))
def test_a_change_that_is_too_small_for_the_noise_is_undecided_not_wrong(seed: int) -> None:
    finder = Finder([1.0] * 100, Limits(LEAST, runs=150))
    verdict = carry_out(finder, line(100, 40, 0.08), 0.4, seed)
    assert verdict.outcome in (Outcome.UNDECIDED, Outcome.NOTHING)


@pytest.mark.parametrize("seed", range(10))
def test_of_several_changes_one_that_is_there_is_named(seed: int) -> None:
    level = [1.0] * 60 + [1.4] * 70 + [2.4] * 70
    verdict = carry_out(Finder([1.0] * 200, Limits(LEAST)), level, 0.03, seed)
    assert verdict.outcome is Outcome.FOUND
    assert verdict.positions in ((60,), (130,))


def test_counts_without_noise_need_few_runs() -> None:
    finder = Finder([1.0] * 1000, Limits(LEAST))
    verdict = carry_out(finder, line(1000, 611, 5.0), 0.0, 1)
    assert verdict.outcome is Outcome.FOUND and verdict.positions == (611,)
    assert len(finder.samples) <= 13


def test_an_outlier_moves_nothing() -> None:
    finder = Finder([1.0] * 100, Limits(LEAST))
    chosen = random.Random(3)
    level = line(100, 71, 0.2)
    while isinstance(wish := finder.next(), Wish):
        for number in range(wish.rounds):
            for position in wish.positions if number % 2 == 0 else wish.positions[::-1]:
                outlier = 3.0 if chosen.random() < 0.05 else 0.0
                finder.measured(
                    position, math.log(level[position]) + chosen.gauss(0, 0.03) + outlier
                )
    assert wish.outcome is Outcome.FOUND and wish.positions == (71,)


def test_what_the_two_beside_it_do_not_confirm_is_not_named() -> None:
    """The machine changes its speed once, in the middle of the search."""
    finder = Finder([1.0] * 64, Limits(LEAST))
    chosen = random.Random(1)
    told = 0
    while isinstance(wish := finder.next(), Wish):
        for _ in range(wish.rounds):
            for position in wish.positions:
                told += 1
                # What is measured first, of both ends, differs; what comes later does not.
                value = 1.3 if told <= 12 and position == 63 else 1.0
                finder.measured(position, math.log(value) + chosen.gauss(0, 0.01))
    assert wish.outcome is not Outcome.FOUND


def test_a_machine_that_is_never_quiet_is_undecided(worlds: list[World]) -> None:
    search, bench = worlds[0].search(1, None, step=0.0, noise=0.05, broken=0.0)

    def busy(_: object) -> float:
        raise Busy

    bench.measure = busy  # type: ignore[method-assign]
    verdict = search.through(worlds[0].chain).verdict
    assert verdict.outcome is Outcome.UNDECIDED and "busy" in verdict.why


def test_all_changes_are_found(worlds: list[World]) -> None:
    one = worlds[0]
    search, bench = one.search(1, None, step=0.0, noise=0.02, broken=0.1)
    places = [
        s for s, weight in zip(one.chain.sources, one.chain.weights, strict=True) if weight == 1
    ]
    first, second = mark_of(places[100]), mark_of(places[300])

    def level(source: object) -> float:
        before = one.before[mark_of(source)]  # type: ignore[arg-type]
        return (1.3 if first in before else 1.0) * (0.8 if second in before else 1.0)

    bench.level = level
    # Neither the first ten nor the last can be built.
    sources = [*places[:10], *places[-10:]]
    ends = {one.chain.sources[0].key, *(each.key for each in sources)}
    bench.is_broken = lambda source: source.key in ends
    found = search.all(one.chain)
    assert [names(each) for each in found] == [[first], [second]]


def test_where_there_is_no_change_all_of_them_are_none(worlds: list[World]) -> None:
    """Also if the oldest cannot be built."""
    one = worlds[0]
    search, bench = one.search(1, None, step=0.0, noise=0.02, broken=0.0)
    bench.is_broken = lambda source: source.key == one.chain.sources[0].key
    (found,) = search.all(one.chain)
    assert found.verdict.outcome is Outcome.NOTHING
    bench.builds.clear()
    bench.told.clear()
    bench.is_broken = lambda _: True
    (found,) = search.all(one.chain)
    assert found.verdict.outcome is Outcome.UNTESTABLE


def test_repositories_agree(tmp_path: Path) -> None:
    """What is asked of a repository is the same in both kinds."""
    if shutil.which("fossil") is None:
        pytest.skip("fossil is not installed")
    one, other = git_world(tmp_path, 3), fossil_world(tmp_path, 3)

    def shape(of: World) -> list[tuple[int, list[int]]]:
        repository: Repository = of.repository
        return [
            (
                mark_of(source),
                [int(each.subject.split()[1]) for each in repository.merged(source.revision)],
            )
            for source in of.chain.sources
        ]

    assert shape(one) == shape(other)
    assert one.chain.weights == other.chain.weights


# What is planted by hand.


def planted(folder: Path, shape: list[tuple[tuple[int, ...], float]]) -> World:
    """A repository of commits with these parents (as numbers of commits, from 1 on) and levels."""
    commits = [
        Commit(mark, parents, mark, False) for mark, (parents, _) in enumerate(shape, start=1)
    ]
    names = git_repository(folder / "planted", commits)
    repository = Git(folder / "planted")
    return world(commits, repository, names[1], names[len(commits)])


def search_of(of: World, shape: list[tuple[tuple[int, ...], float]]) -> Search:
    search, bench = of.search(1, None, step=0.0, noise=0.01, broken=0.0)
    bench.level = lambda source: shape[mark_of(source) - 1][1]
    return search


# 1 to 3 on the trunk, where 3 changes the level, too; 4 to 6 leave it at 2, and 5 doubles it; the
# merge, 7, has both.
LEFT_BEFORE = [((), 10), ((1,), 10), ((2,), 5), ((2,), 10), ((4,), 20), ((5,), 20), ((3, 6), 10)]


def test_a_branch_that_left_before_another_change_is_searched_by_itself(tmp_path: Path) -> None:
    of = planted(tmp_path, LEFT_BEFORE)
    found = search_of(of, LEFT_BEFORE).through(of.chain, low=1)
    # From 2 to the merge there are two changes: 3 halves it, the merge doubles it again.
    assert found.verdict.outcome is Outcome.NOTHING or names(found) in ([3], [5])
    all_of_them = search_of(of, LEFT_BEFORE).all(of.chain)
    assert [names(one) for one in all_of_them] == [[3], [5]]


# Two branches from 2, one of which changes the level, merged at once.
OCTOPUS = [((), 1), ((1,), 1), ((2,), 1), ((2,), 2), ((2,), 1), ((3, 4, 5), 2), ((6,), 2)]


def test_branches_that_are_merged_at_once_are_not_one_after_the_other(tmp_path: Path) -> None:
    of = planted(tmp_path, OCTOPUS)
    found = search_of(of, OCTOPUS).through(of.chain)
    assert names(found) == [6] and found.inside is None


def test_what_was_measured_inside_is_no_end() -> None:
    """A range that has grown: what is known lies in its middle."""
    finder = Finder([1.0] * 200, Limits(LEAST))
    chosen = random.Random(1)
    for position in (90, 110):
        for _ in range(6):
            finder.measured(position, chosen.gauss(0, 0.02))
    finder.known_runs = finder.runs
    verdict = carry_out(finder, line(200, 180, 0.3), 0.02, 1)
    assert verdict.outcome is Outcome.FOUND and verdict.positions == (180,)


def test_the_newest_that_does_not_run_is_not_replaced_by_the_oldest() -> None:
    finder = Finder([1.0] * 1000, Limits(LEAST))
    verdict = carry_out(finder, line(1000, 990, 0.2), 0.02, 1, broken={999})
    assert verdict.outcome is Outcome.FOUND and verdict.positions == (990,)


@pytest.mark.parametrize("share", [0.3, 0.4, 0.7])
def test_many_old_ones_that_no_compiler_takes(share: float) -> None:
    first = round(1000 * share)
    finder = Finder([1.0] * 1000, Limits(LEAST))
    verdict = carry_out(finder, line(1000, 900, 0.3), 0.02, 1, broken=set(range(first)))
    assert verdict.outcome is Outcome.FOUND and verdict.positions == (900,)
    assert len(finder.failed) < 30


def test_what_was_known_before_is_no_expense() -> None:
    finder = Finder([1.0] * 100, Limits(LEAST, runs=200))
    chosen = random.Random(1)
    for position in range(0, 100, 2):
        for _ in range(6):
            finder.measured(position, (0.3 if position >= 41 else 0.0) + chosen.gauss(0, 0.02))
    finder.known_runs = finder.runs
    verdict = carry_out(finder, line(100, 41, math.expm1(0.3)), 0.02, 1)
    assert verdict.outcome is Outcome.FOUND and verdict.positions == (41,)
