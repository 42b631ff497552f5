"""Two results beside one another: what became faster, what slower, and what cannot be told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from deconvoy import output
from deconvoy.bench.mixed import MIX
from deconvoy.bench.results import Result
from deconvoy.bench.stats import CONFIDENCE, LEAST_SAMPLES, Estimate, estimate
from deconvoy.bench.store import identity, open_result
from deconvoy.bench.summary import Cell, Key, cells
from deconvoy.errors import UserError

# What chance alone may do, as a share of the cells that are said to differ.
SIGNIFICANCE = 1 - CONFIDENCE

KEY = """\
B / A: of the geometric means of all runs, with its 95 % interval. faster, slower: by Welch's t-test
  of the logarithms, corrected for the number of cells, as p is: of those that are said to differ,
  5 % may be chance (Benjamini and Hochberg). too few runs: fewer than 3 each, with which nothing
  can be told."""


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "not significant"
    TOO_FEW = "too few runs"


@dataclass(frozen=True)
class Change:
    """A cell in both results. `metric`: what was compared, of which less is better."""

    key: Key
    metric: str
    before: Estimate
    after: Estimate
    ratio: Estimate
    p_value: float
    verdict: Verdict

    def row(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self.key) | {
            name: asdict(value) if isinstance(value, Estimate) else value
            for name, value in vars(self).items()
            if name != "key"
        }


def difference(before: Sequence[float], after: Sequence[float]) -> tuple[Estimate, float]:
    """The ratio of the geometric means, after over before, with its 95 % interval, and how often
    chance alone makes it as far from 1: by the unequal-variances t-test of the logarithms (Welch,
    1947), since times are late by factors. Without any noise the ratio is known."""
    from scipy.stats import ttest_ind

    one, other = np.log(before), np.log(after)
    gap, runs = float(other.mean() - one.mean()), min(len(one), len(other))
    middle = float(np.exp(gap))
    if runs < 2 or (np.ptp(one) == 0 and np.ptp(other) == 0):
        return Estimate(middle, middle, middle, runs), float(gap == 0)
    found = ttest_ind(other, one, equal_var=False)
    interval = found.confidence_interval(CONFIDENCE)
    low, high = float(np.exp(interval.low)), float(np.exp(interval.high))
    return Estimate(middle, low, high, runs), float(found.pvalue)


def metric_of(key: Key) -> str:
    """What is compared when nothing is said. A workload runs for a set time, so that its waits; a
    client of messaging may have given up, so that what an answered message took."""
    if key.scenario.startswith(MIX):
        return "p99_ns"
    return "message_s" if key.scenario == "messaging" else "elapsed_s"


def changes_of(before: Result, after: Result, metric: str | None = None) -> list[Change]:
    """Every cell that both have, with what is known of the difference."""
    from scipy.stats import false_discovery_control

    changes = []
    theirs = cells(after)
    for key, cell in cells(before).items():
        name = metric or metric_of(key)
        samples = [one.samples(name) for one in (cell, theirs.get(key)) if one is not None]
        if len(samples) == 2 and all(each and min(each) > 0 for each in samples):
            changes.append(_change(key, name, *samples))
    tested = [change for change in changes if change.verdict is not Verdict.TOO_FEW]
    if not tested:
        return changes
    corrected = iter(false_discovery_control([change.p_value for change in tested]))
    return [
        change if change.verdict is Verdict.TOO_FEW else _judged(change, float(next(corrected)))
        for change in changes
    ]


def _change(key: Key, name: str, before: list[float], after: list[float]) -> Change:
    ratio, p_value = difference(before, after)
    few = min(len(before), len(after)) < LEAST_SAMPLES
    verdict = Verdict.TOO_FEW if few else Verdict.SAME
    known = 1.0 if few else p_value
    return Change(key, name, estimate(before), estimate(after), ratio, known, verdict)


def _judged(change: Change, p: float) -> Change:
    if p >= SIGNIFICANCE:
        return replace(change, p_value=p)
    verdict = Verdict.FASTER if change.ratio.median < 1 else Verdict.SLOWER
    return replace(change, p_value=p, verdict=verdict)


def only_in(one: Result, other: Result) -> list[Cell]:
    """The cells of a result that the other one has not."""
    theirs = cells(other)
    return [cell for key, cell in cells(one).items() if key not in theirs]


def comparison_table(changes: Sequence[Change]) -> Table:
    numbers = ("A", "B", "B / A", "95 % interval", "p")
    heads = ("scenario", "runtime", "mode", "workers", "size")
    sized = any(change.key.size is not None for change in changes)
    shown = heads if sized else heads[:-1]
    right = (*numbers, "workers", "size")
    table = output.table(*shown, "of", *numbers, "verdict", numbers=right)
    for change in changes:
        key, times = change.key, change.ratio
        what = (key.scenario, key.full_runtime, key.mode or "", str(key.workers))
        table.add_row(
            *map(output.plain, what),
            *([str(key.size or "")] if sized else []),
            change.metric,
            *(value_text(change.metric, side.median) for side in (change.before, change.after)),
            f"{times.median:.3f}x",
            f"{times.low:.3f} to {times.high:.3f}",
            "" if change.verdict is Verdict.TOO_FEW else f"{change.p_value:.3f}",
            change.verdict.value,
        )
    return table


def value_text(name: str, value: float) -> str:
    """With the unit that ends its name."""
    if name.endswith("_ns"):
        return output.time_text(value)
    if name.endswith("_s"):
        return output.time_text(value * 1e9)
    if name.endswith("_bytes"):
        return f"{value / 2**20:,.1f} MiB"
    return f"{value:,.6g}"


@click.command(name="compare")
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@click.option(
    "--metric",
    metavar="NAME",
    help="What is compared: elapsed_s, p50_ns, p99_ns, user_s, system_s, minor_faults and so on; "
    "less is better. Default: elapsed_s; of messaging message_s, of a workload p99_ns.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def compare(before: Path, after: Path, metric: str | None, as_json: bool) -> None:
    """Say what became faster, what slower and what is not significant, from result A to result B.

    A and B are result files of deconvoy bench, or folders of them, each then taken as one.
    """
    one, other = open_result(before), open_result(after)
    changes = changes_of(one, other, metric)
    if not changes:
        raise UserError(f"nothing to compare: {why_nothing(one, other, metric)}")
    lonely = [only_in(one, other), only_in(other, one)]
    if as_json:
        only = [[cell.key.name for cell in several] for several in lonely]
        data = {"version": 1, "changes": [change.row() for change in changes]}
        click.echo(json.dumps(data | {"only_in_a": only[0], "only_in_b": only[1]}))
        return
    console = output.console()
    console.print(comparison_table(changes))
    console.print(KEY, style="dim", soft_wrap=True)
    counts = dict.fromkeys(Verdict, 0)
    for change in changes:
        counts[change.verdict] += 1
    told = (f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    console.print(", ".join(told))
    for letter, several in zip("AB", lonely, strict=True):
        if several:
            names = "; ".join(output.plain(cell.key.name) for cell in several)
            console.print(f"note: only in {letter}: {names}", soft_wrap=True)
    for note in notes(one, other):
        console.print(f"note: {output.plain(note)}", soft_wrap=True)


def why_nothing(one: Result, other: Result, metric: str | None) -> str:
    """For a user who compared what has nothing in common."""
    common = cells(one).keys() & cells(other).keys()
    if not common:
        whatever = [{replace(key, work=0) for key in cells(each)} for each in (one, other)]
        if whatever[0] & whatever[1]:
            return "the same cells, but with other amounts of work (--work, --quick)"
        return "no cell is in both results"
    have = sorted({name for key in common for name in cells(one)[key].estimates})
    wanted = metric or " or ".join(sorted({metric_of(key) for key in common}))
    return f"no {wanted} above 0 in both; there are {', '.join(have)}"


def notes(one: Result, other: Result) -> list[str]:
    """What else differs between two results."""
    found = []
    if identity(one.machine) != identity(other.machine):
        found.append("the results are from different machines")
    for name in one.runtimes.keys() & other.runtimes.keys():
        if one.runtimes[name] != other.runtimes[name]:
            found.append(f"{name} was {one.runtimes[name]}, and is {other.runtimes[name]}")
    for letter, result in zip("AB", (one, other), strict=True):
        if result.unquiet:
            found.append(f"{result.unquiet} of {letter} were made beside other work")
    return sorted(found)
