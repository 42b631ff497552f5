"""A benchmark of pyperformance that measures nothing: its worker tells, as metadata of the result,
whether the library is in it and what policy it was given. CPython 3.8 and later run it.
"""

import os

import pyperf  # type: ignore[import-not-found]

LIBRARY = "libdeconvoy_preload"

runner = pyperf.Runner()
# Absent rather than empty: pyperf takes no empty text.
with open("/proc/self/maps") as maps:
    if LIBRARY in maps.read():
        runner.metadata["deconvoy_library"] = LIBRARY
if os.environ.get("DECONVOY_POLICY"):
    runner.metadata["deconvoy_policy"] = os.environ["DECONVOY_POLICY"]
runner.bench_func("served", abs, 1)
