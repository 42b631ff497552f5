"""The preloaded library and the environment that loads it. Its side: crates/shim/src/config.rs."""

import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from deconvoy import _native
from deconvoy.errors import UserError
from deconvoy.files import cache_folder

STOCK = "stock"

# The library that serves the GIL, and the one that counts a program's mutexes.
SERVES, COUNTS_MUTEXES = "libdeconvoy_preload.so", "libdeconvoy_mutexes.so"

# What the library reads; an outer run's are not an inner one's.
SETTINGS = {
    "DECONVOY_POLICY",
    "DECONVOY_TRACE",
    "DECONVOY_TRACE_BYTES",
    "DECONVOY_EXEC_CHILDREN",
    "DECONVOY_MUTEXES",
}

# What the dynamic loader takes for a separator, or for the start of a token such as $LIB.
UNSAFE = frozenset(" :$\n\t")


def check_policy(policy: str) -> None:
    """Raise UserError unless the library would take `policy`."""
    if policy == STOCK:
        return
    try:
        _native.check_policy(policy)
    except ValueError as error:
        raise UserError(str(error)) from None
    if len(os.fsencode(policy)) > _native.POLICY_BYTES:
        raise UserError(f"a policy takes at most {_native.POLICY_BYTES} bytes")


def library(called: str = SERVES) -> Path:
    """A library, under a path that LD_PRELOAD can express.

    Raises:
        UserError: it is missing, or there is no such path.
    """
    installed = Path(__file__).resolve().with_name(called)
    if not installed.exists():
        raise UserError(f"{installed} is missing: install deconvoy anew")
    if UNSAFE.isdisjoint(str(installed)):
        return installed
    name = sha256(os.fsencode(installed)).hexdigest()[:16]
    link = cache_folder() / "preload" / name / installed.name
    if not UNSAFE.isdisjoint(str(link)):
        raise UserError(
            f"neither {installed} nor {link} can stand in LD_PRELOAD, because of a space, "
            "colon or $: set XDG_CACHE_HOME to a folder without"
        )
    point(link, installed)
    return link


def point(link: Path, target: Path) -> None:
    """Make `link` lead to `target`, whoever else does the same now."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=link.parent) as folder:
        fresh = Path(folder, link.name)
        fresh.symlink_to(target)
        fresh.replace(link)


def counting_mutexes(folder: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A copy of `base` in which a program leaves a lock profile in a folder."""
    changed = {name: value for name, value in base.items() if name not in SETTINGS}
    ours = str(library(COUNTS_MUTEXES))
    changed["LD_PRELOAD"] = ":".join(filter(None, [ours, base.get("LD_PRELOAD")]))
    changed["DECONVOY_MUTEXES"] = str(folder)
    return changed


def environment(
    policy: str,
    *,
    base: Mapping[str, str] = os.environ,
    trace: Path | None = None,
    trace_bytes: int | None = None,
    exec_children: bool = True,
) -> dict[str, str]:
    """A copy of `base` in which a program runs under `policy`, and traced into a folder."""
    changed = {name: value for name, value in base.items() if name not in SETTINGS}
    ours = str(library())
    others = [path for path in base.get("LD_PRELOAD", "").split(":") if path and path != ours]
    changed["LD_PRELOAD"] = ":".join([ours, *others])
    changed["DECONVOY_POLICY"] = policy
    if trace is not None:
        changed["DECONVOY_TRACE"] = str(trace)
    if trace_bytes is not None:
        changed["DECONVOY_TRACE_BYTES"] = str(trace_bytes)
    if not exec_children:
        changed["DECONVOY_EXEC_CHILDREN"] = "0"
    return changed
