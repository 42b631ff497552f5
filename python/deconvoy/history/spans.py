"""Failures that follow one another for one reason, as one."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass

from deconvoy.history.store import Failure
from deconvoy.history.walk import Chain

# What differs between two failures of one reason: names of builds and revisions, other numbers.
VARIES = re.compile(r"\b[0-9a-f]{7,64}\b|\d+")


@dataclass(frozen=True)
class Span:
    """Revisions of a chain, from one position to another, that fail for one reason."""

    first: int
    last: int
    count: int
    failure: Failure


def cause(failure: Failure) -> str:
    """What two failures of one reason have in common."""
    return VARIES.sub("#", f"{failure.step}: {failure.text}")


def spans(chain: Chain, failures: Mapping[str, Failure], measured: Container[str]) -> list[Span]:
    """In order. Revisions that were not tried do not divide a span; those whose builds were
    `measured` do."""
    found: list[Span] = []
    ends = True
    for position, source in enumerate(chain.sources):
        failure = failures.get(source.key)
        if failure is None:
            ends = ends or source.key in measured
            continue
        if found and not ends and cause(found[-1].failure) == cause(failure):
            last = found[-1]
            found[-1] = Span(last.first, position, last.count + 1, last.failure)
        else:
            found.append(Span(position, position, 1, failure))
        ends = False
    return found
