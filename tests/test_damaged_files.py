"""Readers of files that others wrote: whatever is in them, an answer or one clear error."""

import io
import json
import shutil
from pathlib import Path

import pytest
from deconvoy._native import inspect_elf
from deconvoy.bench.results import Result, Run, load
from deconvoy.bench.show import show
from deconvoy.errors import UserError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

# A small program of every machine; a header is what most of what is read here hangs on.
PROGRAM = shutil.which("true") or "/bin/true"
HEADER_BYTES = 4096

damages = st.lists(
    st.tuples(st.integers(0, HEADER_BYTES - 1), st.binary(min_size=1, max_size=16)), max_size=8
)


@settings(max_examples=300, deadline=None)
@given(damages, st.integers(0, 1 << 17))
def test_a_damaged_program_is_inspected_or_refused(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, bytes]], length: int
) -> None:
    contents = bytearray(Path(PROGRAM).read_bytes())
    for at, value in damage:
        contents[at : at + len(value)] = value
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(contents[:length])
    try:
        found = inspect_elf(path)
    except OSError:
        return
    assert found is None or found["bits"] in (32, 64)


RESULT = Result(
    command=["deconvoy", "bench"],
    created_unix_s=1.0,
    deconvoy="0.1.0",
    machine={},
    settings={},
    runtimes={},
    runs=[Run("c", "messaging", 1, 0, {"elapsed_s": 1.0}, 0.0, True)],
    skipped={"perl": "not installed"},
    machines={"other": {}},
)
LINES = [json.loads(line) for line in RESULT.lines()]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
changes = st.dictionaries(
    st.sampled_from([*LINES[0], *LINES[2]["run"], "run", "skipped", "odd"]),
    json_values,
    max_size=2,
)


@settings(deadline=None)
@given(st.integers(0, len(LINES) - 1), changes | json_values, st.integers(0, 1000))
@example(0, {}, 0)
def test_a_damaged_result_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at: int, change: object, cut: int
) -> None:
    """One line has other contents, and the end is missing."""
    path = tmp_path_factory.getbasetemp() / "result.jsonl"
    lines = list(LINES)
    if isinstance(change, dict):
        told = lines[at].get("run")
        lines[at] = {"run": told | change} if told else lines[at] | change
    else:
        lines[at] = change
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    path.write_text(text[: max(len(text) - cut, 0)])
    try:
        read = load(path)
    except UserError as error:
        said = str(error)
    else:
        assert all(isinstance(run, Run) for run in read.runs)
        # Whatever it says, it can be shown.
        show(read, Console(file=io.StringIO()))
        said = str(path)
    assert str(path) in said
