"""Scenarios in the simulator: the same work as a workload of the simulator's, in virtual time."""

from __future__ import annotations

import functools
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deconvoy import calibration
from deconvoy._native import MAX_CORES, check_costs, check_policy, cost_presets, simulate
from deconvoy.errors import UserError
from deconvoy.preload import STOCK

# Before a policy in the simulator: sim:POLICY@CORES, sim:POLICY@CORES/COSTS.
SIM = "sim:"

# Instructions of one round of the loops of `scenarios/`, in the lab's machine.
COUNTDOWN_INSTRUCTIONS = 9
SPIN_INSTRUCTIONS = 7

# The server's own work between two calls: a handful of instructions.
BETWEEN_CALLS_NS = 20

# A message that is not answered: the run ends after so many seconds of virtual time.
LIMIT_S = 60

# The CPU-bound threads alone are simulated this long, in seconds of virtual time.
ALONE_S = 1


@dataclass(frozen=True)
class Simulation:
    """What a runtime of the simulator says: `sim:timer:10ms@8/2010`."""

    policy: str
    cores: int
    costs: str

    @functools.cached_property
    def costs_toml(self) -> str:
        return costs_named(self.costs)

    def run(
        self, mix: str, seed: int, trace: Path | None = None, again: str = ""
    ) -> dict[str, Any]:
        """The outcome of a workload (TOML); see crates/sim/src/outcome.rs. `again`: repeats it,
        for whoever reads the trace."""
        text = simulate(self.policy, self.cores, mix, self.costs_toml, seed, trace, again)
        outcome: dict[str, Any] = json.loads(text)
        return outcome


def parse(name: str) -> Simulation:
    """Reads the name of a runtime.

    Raises UserError for what cannot be simulated.
    """
    policy, at, rest = name.removeprefix(SIM).rpartition("@")
    if not at:
        raise UserError(f"{name}: say on how many cores, as in {name}@4")
    if policy == STOCK:
        raise UserError(f"{name}: stock is CPython's own lock; its rule is sim:timeout{at}{rest}")
    try:
        check_policy(policy)
    except ValueError as error:
        raise UserError(str(error)) from None
    cores, _, costs = rest.partition("/")
    if not cores.isdecimal() or not 1 <= int(cores) <= MAX_CORES:
        raise UserError(f"{name}: cores must be from 1 to {MAX_CORES}")
    costs_named(costs)
    return Simulation(policy, int(cores), costs)


def costs_named(name: str) -> str:
    """The costs of that name as TOML; without a name, those measured on this machine, else those
    of the machine that this project was built on.

    Raises UserError for an unknown name.
    """
    if not name:
        return calibration.load() or dict(cost_presets())["vm"]
    known = dict(cost_presets())
    if name not in known:
        raise UserError(f"no costs {name!r}; there are {', '.join(known)}")
    return known[name]


def instruction_ns(simulation: Simulation) -> float:
    return float(json.loads(check_costs(simulation.costs_toml))["instruction_ns"])


def threads(name: str, count: int, loop: str, *more: str) -> str:
    """A group of a workload, as TOML."""
    head = ["[[threads]]", f'name = "{name}"', f"count = {count}", *more]
    return "\n".join([*head, f"loop = [{loop}]", ""])


def countdown_mix(workers: int, work: int, instruction: float) -> str:
    """`countdown` as a workload: each thread computes its part, once."""
    part_ns = work // workers * COUNTDOWN_INSTRUCTIONS * instruction
    loop = f'{{ compute = "{part_ns:.0f}ns" }}'
    return 'duration = "1000000s"\n' + threads("count", workers, loop, "times = 1")


def messaging_mix(
    workers: int,
    work: int,
    seconds: float,
    with_client: bool = True,
    between_ns: float = BETWEEN_CALLS_NS,
) -> str:
    """`messaging` as a workload: a server of four calls a message, CPU-bound threads, a client.
    `between_ns`: what the server computes between two calls."""
    parts = [f'duration = "{seconds}s"\n']
    if workers:
        parts.append(threads("spin", workers, '{ compute = "forever" }'))
    if with_client:
        between = f'{{ compute = "{between_ns:.0f}ns" }}'
        calls = '{ receive = "request" }', '{ native = "3us" }', '{ send = "head" }'
        steps = ", ".join(
            step for call in (*calls, '{ send = "body" }') for step in (call, between)
        )
        parts.append(threads("server", 1, steps))
        client = (
            '{ send = "request" }, { receive = "head" }, { receive = "body" }, { sleep = "1ms" }'
        )
        parts.append(threads("client", 1, client, "gil = false", f"times = {work}"))
    return "\n".join(parts)


def group(outcome: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in outcome["groups"] if one["name"] == name)
    return found


def common(outcome: dict[str, Any]) -> dict[str, Any]:
    """What a run of any scenario yields."""
    ran_ns: int = sum(one["ran_ns"] for one in outcome["groups"])
    return {
        "gil_switches": outcome["gil_switches"],
        "voluntary_switches": outcome["context_switches"] - outcome["totals"]["preempted"],
        "involuntary_switches": outcome["totals"]["preempted"],
        "drop_requests": outcome["totals"]["asks"],
        "user_s": ran_ns / 1e9,
        "simulated_events": outcome["totals"]["events"],
    }


def countdown(
    simulation: Simulation,
    workers: int,
    work: int,
    seed: int,
    trace: Path | None = None,
    again: str = "",
) -> dict[str, Any]:
    """One run of `countdown`."""
    mix = countdown_mix(workers, work, instruction_ns(simulation))
    outcome = simulation.run(mix, seed, trace, again)
    return {"elapsed_s": outcome["elapsed_ns"] / 1e9} | common(outcome)


def messaging(
    simulation: Simulation,
    workers: int,
    work: int,
    seed: int,
    trace: Path | None = None,
    again: str = "",
) -> dict[str, Any]:
    """One run of `messaging`."""
    outcome = simulation.run(messaging_mix(workers, work, LIMIT_S), seed, trace, again)
    client = group(outcome, "client")
    elapsed_ns = client["ended_ns"] or outcome["elapsed_ns"]
    answers = client["answers"]
    values = common(outcome) | {"elapsed_s": elapsed_ns / 1e9, "messages": client["rounds"]}
    values["work"] = work
    values |= {name: answers[name] for name in ("p50_ns", "p90_ns", "p99_ns", "max_ns")}
    if workers:
        alone = simulation.run(messaging_mix(workers, work, ALONE_S, with_client=False), seed)
        rate = [per_second(one, simulation) for one in (alone, outcome)]
        values |= {"alone_per_s": rate[0], "beside_per_s": rate[1], "kept": rate[1] / rate[0]}
        values["jain"] = group(outcome, "spin")["jain"]
    return values


def per_second(outcome: dict[str, Any], simulation: Simulation) -> float:
    """What the CPU-bound threads count in a second."""
    round_ns = SPIN_INSTRUCTIONS * instruction_ns(simulation)
    held: int = group(outcome, "spin")["held_ns"]
    elapsed_s: float = outcome["elapsed_ns"] / 1e9
    return held / round_ns / elapsed_s


def repeat_command(scenario: str, runtime: str, workers: int, work: int, seed: int) -> str:
    """The command that repeats one run."""
    parts = ["deconvoy", "bench", scenario, "--runtime", runtime, "--workers", str(workers)]
    return shlex.join([*parts, "--work", str(work), "--runs", "1", "--seed", str(seed)])
