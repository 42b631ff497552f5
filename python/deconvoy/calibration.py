"""What the operations of this machine take, for the simulator: measured by `deconvoy doctor
--calibrate` and kept in the user's data folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deconvoy._native import calibrate_machine, check_costs
from deconvoy.errors import UserError
from deconvoy.files import write_whole


def path() -> Path:
    """Where the measured costs are kept."""
    base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "deconvoy" / "costs.toml"


def load() -> str | None:
    """The measured costs as TOML; None: nothing was measured yet.

    Raises UserError when the file is not what it was.
    """
    try:
        text = path().read_text()
    except OSError:
        return None
    try:
        check_costs(text)
    except ValueError as error:
        again = "deconvoy doctor --calibrate measures anew"
        raise UserError(f"{path()}: {error}; {again}") from None
    return text


def measure(said: Callable[[str], object], machine: dict[str, Any]) -> dict[str, list[float]]:
    """Measures the costs and keeps them: name, and value or quantiles in nanoseconds.

    Raises UserError when they cannot be kept.
    """
    measured = dict(calibrate_machine(said))
    text = as_toml(measured, machine)
    check_costs(text)
    place = path()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text)
    except OSError as error:
        raise UserError(f"cannot write {place}: {error.strerror}") from None
    return measured


def as_toml(measured: dict[str, list[float]], machine: dict[str, Any]) -> str:
    """The costs as a file that the simulator reads."""
    lines = [
        f"# Measured by deconvoy doctor --calibrate on {time.strftime('%Y-%m-%d')}:",
        f"# {machine['processor']}, {machine['cores_available']} cores, Linux {machine['kernel']}.",
        "# Nanoseconds; a list has quantiles, the least first.",
    ]
    for name, values in measured.items():
        if name == "instruction_ns":
            lines.append(f"{name} = {values[0]:.3f}")
        elif len(values) == 1:
            lines.append(f"{name} = {values[0]:.0f}")
        else:
            lines.append(f"{name} = [{', '.join(f'{value:.0f}' for value in values)}]")
    # Linux takes a virtual machine's core that sleeps for one that its host may not run.
    lines += ["[scheduler]", f"sees_idle = {str(not machine['virtual_machine']).lower()}"]
    return "\n".join(lines) + "\n"
