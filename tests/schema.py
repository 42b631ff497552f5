"""What the programs of the scenarios may print: scenarios/schema.json."""

from __future__ import annotations

import json
import resource
from typing import Any

from deconvoy.bench.accounting import accounting
from deconvoy.bench.runtimes import SCENARIOS
from jsonschema import Draft202012Validator

SCHEMA = json.loads((SCENARIOS / "schema.json").read_text())


def check(kind: str, said: dict[str, Any]) -> None:
    """Raises when a line is not of that kind, one of the schema's `$defs`."""
    Draft202012Validator(SCHEMA | {"oneOf": [{"$ref": f"#/$defs/{kind}"}]}).validate(said)


def of_program(values: dict[str, Any]) -> dict[str, Any]:
    """What the program said of a run, without what the bench has added."""
    accounted = accounting(resource.getrusage(resource.RUSAGE_SELF))
    added = {*accounted, "peak_memory_bytes", "machine_memory_bytes"}
    return {name: value for name, value in values.items() if name not in added}
