"""Which cells a call asks for: scenario x runtime x mode x workers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from deconvoy.bench import runtimes
from deconvoy.bench.catalogue import Scenario
from deconvoy.bench.languages import LANGUAGES
from deconvoy.bench.scenario import TASKS, Case
from deconvoy.errors import UserError

PARETO_WORKERS = (1, 2, 4, 8)


def cases_of(
    scenario: Scenario,
    chosen: list[runtimes.Runtime],
    workers: tuple[int, ...],
    work: int,
    interval_s: float | None,
    modes: tuple[str, ...],
    sizes: tuple[int | None, ...],
) -> list[Case]:
    """`modes`: those that were asked for; None: the scenario's, as far as the runtime has them."""
    cases = [
        Case(
            scenario.name,
            runtime,
            1 if mode == "sequential" else count,
            work,
            checked(interval_s, runtime),
            mode,
            size,
        )
        for runtime in chosen
        for size in sizes
        for mode in modes or modes_of(scenario, runtime)
        for count in workers
    ]
    return list(dict.fromkeys(cases))


def able(
    chosen: list[runtimes.Runtime], interval_s: float | None, skipped: dict[str, str]
) -> list[runtimes.Runtime]:
    """Those that can have such a switch interval, or have none; why the others cannot goes to
    `skipped`."""
    kept = []
    for runtime in chosen:
        try:
            checked(interval_s, runtime)
            kept.append(runtime)
        except UserError as error:
            skipped[runtime.name] = str(error)
    return kept


def checked(interval_s: float | None, runtime: runtimes.Runtime) -> float | None:
    """None where a runtime has no such setting. Raises UserError where it cannot be so much."""
    if not runtime.intervals_s:
        return None
    runtime.arguments(interval_s)
    return interval_s


@dataclass(frozen=True)
class Asked:
    """What a call says of its cells; None, or nothing: as the scenario has it."""

    workers: tuple[int, ...] | None
    work: int | None
    interval_s: float | None
    modes: tuple[str, ...]
    sizes: tuple[int, ...] | None
    quick: bool
    pareto: bool


def cases_asked(
    scenarios: Sequence[Scenario], chosen: list[runtimes.Runtime], asked: Asked, named: bool
) -> list[Case]:
    """All cells of a call. `named`: whether it has named the runtimes."""
    cases: list[Case] = []
    for scenario in scenarios:
        amount = asked.work or (scenario.quick_work if asked.quick else scenario.work)
        if asked.pareto:
            cases += pareto_cases(chosen, amount)
            continue
        unnamed = set() if named else without_programs(scenario, chosen)
        mine = [one for one in chosen if one.name not in unnamed]
        counts, sizes = asked.workers or scenario.workers, asked.sizes or scenario.sizes
        how = asked.interval_s, asked.modes, sizes
        cases += cases_of(scenario, mine, counts, amount, *how)
    return cases


def modes_of(scenario: Scenario, runtime: runtimes.Runtime) -> list[str | None]:
    """Those that are tried if nothing is said. Programs of tasks say themselves what they lack."""
    are_all = scenario.name in TASKS and runtime.python is not None
    known = ("sequential", *runtime.modes)
    return [mode for mode in scenario.modes if are_all or mode is None or mode in known]


def pareto_cases(chosen: list[runtimes.Runtime], work: int) -> list[Case]:
    """Each stock CPython and Ruby at every switch interval, and under a policy as it is."""
    cases = []
    for runtime in chosen:
        intervals = runtime.intervals_s[: 1 if runtime.policy else None]
        for count in PARETO_WORKERS:
            cases += [
                Case("messaging", runtime, count, work, interval, "thread")
                for interval in intervals
            ]
    return cases


def default_runtimes(
    scenarios: Sequence[Scenario],
    quick: bool,
    pareto: bool,
    there: runtimes.Available | None = None,
) -> list[str]:
    """What runs them if nothing is said; `there`: see `runtimes.choose`."""
    mine = f"cpython{sys.version_info.major}.{sys.version_info.minor}"
    mine += "t" * runtimes.is_free_threaded()
    policies = dict.fromkeys(policy for one in scenarios for policy in one.policies)
    if quick or pareto:
        under = [policy for policy in policies if policy and (pareto or policy == "adaptive")]
        return [mine, *(f"{mine}+{policy}" for policy in under)]
    languages = [name for one in LANGUAGES for name in [one.name] if wants(scenarios, name)]
    if not policies:
        found, _ = there or runtimes.available()
        free = [name for name in found if name.startswith("cpython") and name.endswith("t")]
        return list(dict.fromkeys([mine, *free, *languages]))
    pythons = [f"cpython*+{policy}" if policy else "cpython*" for policy in policies]
    first = [name for name in languages if name == "c"]
    rubies = [f"ruby+{policy}" for policy in policies if policy and "ruby" in languages]
    return [*first, *pythons, *(name for name in languages if name != "c"), *rubies]


def wants(scenarios: Sequence[Scenario], language: str) -> bool:
    return any(language in one.languages for one in scenarios)


def without_programs(scenario: Scenario, chosen: Sequence[runtimes.Runtime]) -> set[str]:
    """Of runtimes that nobody has named, those that a scenario is not run in."""
    mine = f"cpython{sys.version_info.major}.{sys.version_info.minor}"
    left = set()
    for one in chosen:
        if one.installed is not None:
            wanted = one.installed.language.name in scenario.languages
        elif scenario.policies:
            wanted = one.policy in scenario.policies
        else:
            version = one.name.removeprefix(mine)
            wanted = version in ("", "t") or (one.name.endswith("t") and bool(scenario.languages))
        if not wanted:
            left.add(one.name)
    return left
