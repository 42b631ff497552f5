"""How the tests run the command."""

import subprocess
import sys
from collections.abc import Callable

Deconvoy = Callable[..., "subprocess.CompletedProcess[str]"]

DECONVOY = [sys.executable, "-m", "deconvoy"]

# Not a measure of anything: a hang must not hang the tests.
HANGS_AFTER_S = 300
