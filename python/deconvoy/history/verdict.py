"""What a search may wish for, when it stops, and what it may come to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from deconvoy.history.posterior import Step

# Runs of a revision at a time.
BATCH = 3

# Rounds in which the revision named and the one before it are measured in turn, at the end.
CONFIRMING = 10


class Outcome(Enum):
    FOUND = "found"
    NOTHING = "no change"
    UNDECIDED = "undecided"
    UNTESTABLE = "untestable"


@dataclass(frozen=True)
class Limits:
    """When to stop. `least`: the smallest change that matters, in the unit of the samples; `runs`:
    after so many it is undecided."""

    least: float
    confidence: float = 0.95
    runs: int = 600
    confirming: int = CONFIRMING


@dataclass(frozen=True)
class Verdict:
    """What a search has come to. `positions`: those of which one is the change, in order; of them
    all but the last could not be built. `probability` is that of the outcome."""

    outcome: Outcome
    why: str = ""
    positions: tuple[int, ...] = ()
    probability: float = 0.0
    step: Step | None = None
    before: int | None = None
    others: bool = False


@dataclass(frozen=True)
class Wish:
    """What is wanted next: so many rounds of runs, over these positions in turn; they are built
    first if need be. `confirms`: what is found is being looked at again."""

    positions: tuple[int, ...]
    rounds: int
    confirms: bool = False
