"""Real servers and clients with a CPU-bound thread inside answer as they do stock, and end as they
do stock. Counts only: what they gain is measured by benchmarks/servers, which shares its parts."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from commandline import DECONVOY
from deconvoy.interpreters import inspect

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from serving.environment import Environment, environment_of
from serving.programs import PROGRAM_LIST, Program

REQUESTS = 200

VERBS = {
    "run": ["run", "--policy", "adaptive"],
    "trace": ["trace", "--quiet"],
    "trace-adaptive": ["trace", "--quiet", "--policy", "adaptive"],
}


class Addresses:
    """The databases, each brought up when a test first asks for it."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.known: dict[str, str] = {}

    def of(self, program: Program) -> str:
        if program.database is None:
            return ""
        if program.name not in self.known:
            self.known[program.name] = self.stack.enter_context(program.database())
        return self.known[program.name]


@pytest.fixture(scope="session")
def addresses() -> Iterator[Addresses]:
    with ExitStack() as stack:
        yield Addresses(stack)


@pytest.fixture(scope="session")
def environment(python: str) -> Environment:
    """Of the Python that runs the tests, if it can be served: benchmarks/servers makes that one."""
    own = inspect(Path(sys.executable), "tests")
    return environment_of(sys.executable if own and own.can_be_served else python)


def use(
    program: Program, before: list[str], environment: Environment, address: str, folder: Path
) -> int:
    """Make requests of a program, then end it; its status."""
    with program.started(
        environment, before, folder / "stderr", address=address, cwd=folder
    ) as session:
        start = session.counted()
        load = session.requests(REQUESTS)
        assert (load.requests, load.wrong, load.first_error) == (REQUESTS, 0, None)
        assert session.counted().count > start.count
        return session.end()


@pytest.fixture(scope="session")
def stock_status() -> dict[str, int]:
    """How each program ends without us, once it is known."""
    return {}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("program", PROGRAM_LIST, ids=lambda program: program.name)
def test_it_answers_and_ends_as_stock(
    program: Program,
    verb: str,
    environment: Environment,
    addresses: Addresses,
    stock_status: dict[str, int],
    tmp_path: Path,
) -> None:
    if program.needs_packages and not environment.exists:
        pytest.skip(f"no packages in {environment.folder}: benchmarks/servers brings them")
    if why_not := program.why_not_started():
        pytest.skip(why_not)
    address = addresses.of(program)
    if program.name not in stock_status:
        (folder := tmp_path / "stock").mkdir()
        stock_status[program.name] = use(program, [], environment, address, folder)

    (folder := tmp_path / "ours").mkdir()
    before = [*DECONVOY, *VERBS[verb], "--"]
    status = use(program, before, environment, address, folder)
    assert status == stock_status[program.name]
    assert (folder / "stderr").read_text() == ""
    if verb != "run":
        (traces,) = folder.glob("*.deconvoy")
        assert list(traces.glob("*.trace"))
