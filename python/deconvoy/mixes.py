"""The workloads that come with the project, as data: `data/mixes/*.toml`."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from deconvoy._native import check_mix
from deconvoy.errors import UserError


def names() -> list[str]:
    folder = resources.files("deconvoy").joinpath("data", "mixes")
    files = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def load(name: str) -> str:
    """The workload of that name, or in the file of that name, as TOML.

    Raises UserError when there is none, or it makes no sense.
    """
    if not name:
        raise UserError(f"a workload has a name, or is a file; there are {', '.join(names())}")
    if name in names():
        return resources.files("deconvoy").joinpath("data", "mixes", f"{name}.toml").read_text()
    path = Path(name)
    try:
        text = path.read_text()
    except FileNotFoundError:
        have = ", ".join(names())
        raise UserError(f"no mix {name!r}, and no such file; there are {have}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: {getattr(error, 'strerror', None) or 'not text'}") from None
    try:
        check_mix(text)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None
    return text
