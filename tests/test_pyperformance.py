"""benchmarks/pyperformance measures nothing unless the library is where it is to be measured."""

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from deconvoy.errors import UserError
from deconvoy.interpreters import inspect

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from serving.environment import Environment, environment_of

SCRIPT = Path(__file__).parent.parent / "benchmarks/pyperformance"
POLICY = "adaptive"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("pyperformance_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look.
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def environment(script: ModuleType, python: str) -> Environment:
    """Of the Python that runs the tests, if it can be served: benchmarks/pyperformance makes it."""
    own = inspect(Path(sys.executable), "tests")
    return environment_of(sys.executable if own and own.can_be_served else python, script.LOCK)


@pytest.fixture
def place(environment: Environment) -> Path:
    if not list(environment.folder.glob("runs/venv/*")):
        pytest.skip(f"no packages in {environment.folder}: benchmarks/pyperformance brings them")
    return environment.folder / "runs"


@pytest.mark.parametrize(
    ("found", "policy", "says"),
    [
        ({}, None, None),
        ({"deconvoy_library": "it"}, None, "stock, has it loaded"),
        ({"deconvoy_library": "it", "deconvoy_policy": POLICY}, POLICY, None),
        ({"deconvoy_library": "it", "deconvoy_policy": "timeout"}, POLICY, "the policy timeout"),
        ({"deconvoy_library": "it"}, POLICY, "the policy None"),
        ({"deconvoy_policy": POLICY}, POLICY, "does not have the library loaded"),
    ],
)
def test_what_the_probe_found_is_judged(
    script: ModuleType, found: dict[str, Any], policy: str | None, says: str | None
) -> None:
    judged = script.misplaced(found, policy)
    assert (judged is None) == (says is None)
    assert (says or "") in (judged or "")


def test_the_workers_are_served(script: ModuleType, environment: Environment, place: Path) -> None:
    versions = script.probe(environment.program("pyperformance"), POLICY, place)
    assert f"pyperformance=={versions['pyperformance']} " in script.LOCK.read_text()
    assert versions["python"].startswith(environment.version)


def test_a_preload_that_gets_lost_is_noticed(
    script: ModuleType,
    environment: Environment,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(script, "INHERITED", "DECONVOY_POLICY")
    with pytest.raises(UserError, match=f"a worker of pyperf, {POLICY}, .* nothing was measured"):
        script.probe(environment.program("pyperformance"), POLICY, place)


def test_every_benchmark_of_a_script_is_run_stock_and_ours(
    script: ModuleType, environment: Environment, place: Path
) -> None:
    parts = script.parts_of(environment, "json_dumps", place)
    assert [part.name for part in parts] == ["json_dumps"]
    samples = script.measure_all(parts, 1, POLICY)
    assert {name: len(ratios) for name, ratios in samples["json_dumps"].items()} == {
        script.OURS: 1,
        script.AGAIN: 1,
    }


def test_the_json_says_what_was_measured_where(
    script: ModuleType, environment: Environment
) -> None:
    about = script.describe(environment, 3, POLICY)
    assert json.loads(json.dumps(about)) == about
    assert about["version"] == script.FORMAT_VERSION
    assert about["machine"]["cores_available"] >= 1
    assert list(about["runtimes"]) == [environment.runtime, f"{environment.runtime}+{POLICY}"]
