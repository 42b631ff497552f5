"""What holds the drivers together: events recorded under a real interpreter, fed to a fresh policy,
give the same actions."""

from pathlib import Path

import pytest
from commandline import Deconvoy
from deconvoy._native import replay
from deconvoy.interpreters import Interpreter

POLICIES = (
    "adaptive",
    "timeout",
    "priority:echo=5,compute=-5",
    "timer:10ms",
    "mutex:1ms",
    "fifo:100",
    "ticks:100",
)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_under_a_real_interpreter_replays(
    deconvoy: Deconvoy, interpreters: list[Interpreter], tmp_path: Path, policy: str
) -> None:
    """The oldest and the newest CPython found, each beside a thread that computes."""
    served = [one for one in interpreters if one.can_be_served]
    if not served:
        pytest.skip("no CPython from 3.8 on with a GIL")
    demo = Path(__import__("deconvoy.demo", fromlist=["demo"]).__file__)
    for interpreter in dict.fromkeys((served[0], served[-1])):
        folder = tmp_path / f"{interpreter.short_version}.deconvoy"
        done = deconvoy(
            "trace", "-o", folder, "--policy", policy, "--quiet", "--", interpreter.path, demo
        )
        assert done.returncode == 0, done.stderr
        replayed = [replay(file) for file in sorted(folder.glob("*.trace"))]
        # The program and its forked client.
        assert len(replayed) == 2
        events, actions, contended = map(max, *replayed)
        assert contended > 100, "without contention this proves nothing"
        assert actions > 100
        assert events > contended
