"""Builds what is written in Rust into a wheel: the extension module and the preloaded library.

An editable install gets both as files beside the Python sources, and a link to the scenarios.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("python/deconvoy")

# The stable ABI is for builds with a GIL; without, the module is for one version.
IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
VERSION = f"cp{sys.version_info.major}{sys.version_info.minor}"
TAG = f"{VERSION}-{VERSION}t" if IS_FREE_THREADED else "cp311-abi3"
EXTENSION = "_native" + (sysconfig.get_config_var("EXT_SUFFIX") if IS_FREE_THREADED else ".abi3.so")

# Arguments of `cargo build`, the crate's library target, and what it is called in the package.
ARTIFACTS = [
    (["--profile", "extension", "-p", "deconvoy-py"], "_native", EXTENSION),
    (
        ["--profile", "preload", "-p", "deconvoy-shim"],
        "deconvoy_preload",
        "libdeconvoy_preload.so",
    ),
    # The same crate, which counts mutexes, too; beside the other, so that neither is built again
    # for each.
    (
        [
            *("--profile", "preload", "-p", "deconvoy-shim"),
            *("--features", "mutexes", "--target-dir", "target/mutexes"),
        ],
        "deconvoy_preload",
        "libdeconvoy_mutexes.so",
    ),
]


class CargoBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if sys.platform != "linux":
            self.app.abort("deconvoy works on Linux only")
        if shutil.which("cargo") is None:
            self.app.abort("deconvoy is partly written in Rust: install cargo (Rust 1.90 or later)")
        build_data["pure_python"] = False
        build_data["tag"] = f"{TAG}-linux_{platform.machine()}"
        for options, target, name in ARTIFACTS:
            built = self.build(options, target)
            if version == "editable":
                put(built, Path(self.root, PACKAGE, name))
            else:
                build_data["force_include"][str(built)] = f"deconvoy/{name}"
        scenarios = Path(self.root, "scenarios")
        if version == "editable":
            link = Path(self.root, PACKAGE, "scenarios")
            if not link.is_symlink():
                link.symlink_to(os.path.relpath(scenarios, link.parent))
        else:
            build_data["force_include"][str(scenarios)] = "deconvoy/scenarios"

    def build(self, options: list[str], target: str) -> Path:
        """Run cargo and return the library that it made."""
        command = ["cargo", "build", "--locked", "--message-format=json-render-diagnostics"]
        # The stable ABI needs no interpreter to build against, nor to build anew when it changes.
        environment = os.environ | {"PYO3_NO_PYTHON": "1"}
        if IS_FREE_THREADED:
            environment = os.environ | {"PYO3_PYTHON": sys.executable}
            environment.pop("PYO3_NO_PYTHON", None)
            # Beside the other, so that neither is built again for each.
            environment["CARGO_TARGET_DIR"] = str(Path(self.root, "target", TAG))
        done = subprocess.run(
            [*command, *options],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            check=False,
        )
        if done.returncode:
            self.app.abort(f"`{' '.join([*command, *options])}` failed")
        for line in done.stdout.splitlines():
            message = json.loads(line)
            if (
                message["reason"] == "compiler-artifact"
                and message["target"]["name"] == target
                and "cdylib" in message["target"]["kind"]
            ):
                return Path(message["filenames"][0])
        raise AssertionError(f"cargo made no {target}")


def put(built: Path, place: Path) -> None:
    """Copy to a new file: a running process may have the old one mapped."""
    fresh = place.with_name(place.name + ".new")
    shutil.copyfile(built, fresh)
    fresh.replace(place)
