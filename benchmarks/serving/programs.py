"""The programs: how each is started, asked how far its CPU-bound thread is, and loaded."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deconvoy.bench import languages
from deconvoy.bench.process import RunFailed

from serving import databases
from serving.child import PATIENCE_S, Child, clean_environment
from serving.environment import Environment
from serving.load import PROGRAMS, Load, of_phase, of_wrk

# A phase gives up after a few times its length (programs/phases.py); then it has to answer.
PHASE_PATIENCE = 5

# Ends the requests that compute.
STOP_PATH = "/stop"

# Any document will do; wrk asks for one and the same.
WRK_PATH = "/items/17"


@dataclass(frozen=True)
class Counted:
    """How far a program's CPU-bound thread was at a time, in seconds, of the program's clock."""

    at_s: float
    count: int

    def per_second_since(self, earlier: Counted) -> float:
        return (self.count - earlier.count) / (self.at_s - earlier.at_s)


class Session:
    """A started program. `child` is what was started; `asked` takes orders for requests."""

    def __init__(self, child: Child, asked: Child) -> None:
        self.child, self.asked = child, asked

    def counted(self) -> Counted:
        return Counted(**self.asked.ask({"count": True}))

    def end(self) -> int:
        """Ends the program, and returns its status. Raises RunFailed when it does not end."""
        return self.child.end()

    def requests(self, number: int) -> Load:
        """So many, as fast as they are answered."""
        return of_phase(self.asked.ask({"requests": number}))

    def paced(self, per_second: float, seconds: float) -> Load:
        """At a fixed rate; latencies are from when each is due."""
        order = {"per_second": per_second, "seconds": seconds}
        return of_phase(self.asked.ask(order, PHASE_PATIENCE * seconds + PATIENCE_S))

    def saturated(self, seconds: float) -> Load:
        """As many as it answers."""
        order = {"seconds": seconds}
        return of_phase(self.asked.ask(order, PHASE_PATIENCE * seconds + PATIENCE_S))


class HttpSession(Session):
    """A server, with a load generator beside it that takes the orders."""

    def __init__(self, child: Child, asked: Child, port: int, connections: int) -> None:
        super().__init__(child, asked)
        self.port, self.connections = port, connections
        self.computes = False

    def counted(self) -> Counted:
        return Counted(**self.get("/count"))

    def get(self, path: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            found: dict[str, Any] = json.loads(connection.getresponse().read())
            return found
        except (OSError, http.client.HTTPException) as error:
            raise self.child.failed(repr(error)) from error
        finally:
            connection.close()

    @contextmanager
    def computing(self, path: str | None, number: int) -> Iterator[None]:
        """So many requests that compute until another one tells them to stop. None: threads do."""
        if path is None:
            yield
            return
        with ExitStack() as open_ones:
            for _ in range(number):
                connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
                open_ones.enter_context(connection)
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            self.computes = True
            yield

    def end(self) -> int:
        if self.computes:
            # A server that is told to end lets its requests end first.
            self.get(STOP_PATH)
        return super().end()

    def saturated(self, seconds: float) -> Load:
        url = f"http://127.0.0.1:{self.port}{WRK_PATH}"
        return of_wrk(url, self.connections, seconds)


@dataclass(frozen=True)
class Program:
    """One of them: what it is, its command for a port or a database's address, and its database."""

    name: str
    title: str
    command: Callable[[Environment, str], list[str]]
    serves_http: bool = True
    # Whether it needs the packages of requirements.lock.
    needs_packages: bool = True
    database: Callable[[], AbstractContextManager[str]] | None = None
    # Why its database is not to be had.
    why_no_database: Callable[[], str | None] = lambda: None
    # The path of a request that computes; without one the program has threads that do.
    computing: str | None = None
    # The language it is in, and its command, where that is no CPython.
    language: str | None = None
    needs: str | None = None

    def why_not(self) -> str | None:
        """What it lacks on this machine to be measured; None: nothing."""
        if self.serves_http and not shutil.which("wrk"):
            return "wrk is missing: benchmarks/packages"
        return self.why_not_started()

    def why_not_started(self) -> str | None:
        """What it lacks to be started."""
        if self.needs and not shutil.which(self.needs):
            return f"{self.needs} is missing: benchmarks/packages"
        return self.why_no_database()

    def runtime(self, environment: Environment) -> str:
        """What runs it, as `deconvoy bench` calls it: `cpython3.11`, `ruby3.1`."""
        if self.language is None:
            return environment.runtime
        language = next(one for one in languages.LANGUAGES if one.name == self.language)
        return languages.inspect(language, languages.commands_of(language)[0]).name

    @contextmanager
    def started(
        self,
        environment: Environment,
        before: Sequence[str],
        log: Path,
        *,
        address: str = "",
        cpu_bound_threads: int = 1,
        connections: int = 8,
        cwd: Path | None = None,
    ) -> Iterator[Session]:
        """The program, started with the words of `before` in front of its command, and ready.

        Args:
            address: that of its database.
            log: takes what it prints to its standard error.
        """
        variables = clean_environment() | {"CPU_BOUND_THREADS": str(cpu_bound_threads)}
        if not self.serves_http:
            command = [*before, *self.command(environment, address)]
            with Child(command, variables, log, cwd=cwd) as child:
                yield Session(child, child)
            return
        port = databases.free_port()
        command = [*before, *self.command(environment, str(port))]
        generator = [sys.executable, str(PROGRAMS / "http_load.py"), str(port), str(connections)]
        with (
            Child(command, variables, log, cwd=cwd) as child,
            Child(generator, clean_environment(), log.with_suffix(".load")) as load,
        ):
            session = HttpSession(child, load, port, connections)
            databases.wait_until_accepts(child, port)
            wait_until_answers(session)
            with session.computing(self.computing, cpu_bound_threads):
                yield session


def wait_until_answers(session: HttpSession) -> None:
    """gunicorn listens before its worker is there."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        session.child.check()
        try:
            session.counted()
            return
        except RunFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _gunicorn(environment: Environment, port: str) -> list[str]:
    command = [environment.program("gunicorn"), "--worker-class", "gthread", "--threads", "4"]
    command += ["--bind", f"127.0.0.1:{port}", "--log-level", "warning", "--no-control-socket"]
    return [*command, "--pythonpath", str(PROGRAMS), "wsgi_app:make_app()"]


def _uvicorn(environment: Environment, port: str) -> list[str]:
    command = [environment.program("uvicorn"), "--host", "127.0.0.1", "--port", port]
    command += ["--log-level", "warning", "--no-access-log", "--lifespan", "off"]
    return [*command, "--app-dir", str(PROGRAMS), "--factory", "asgi_app:make_app"]


def _puma(*options: str) -> Callable[[Environment, str], list[str]]:
    def command(environment: Environment, port: str) -> list[str]:
        named = ["puma", "--quiet", "--threads", "5:5", "--environment", "production"]
        bound = ["--bind", f"tcp://127.0.0.1:{port}", str(PROGRAMS / "rack_app.ru")]
        return [*named, *options, *bound]

    return command


def _ruby(name: str, title: str, *options: str) -> Program:
    return Program(
        name,
        title,
        _puma(*options),
        needs_packages=False,
        computing="/compute",
        language="ruby",
        needs="puma",
    )


def _http_server(environment: Environment, port: str) -> list[str]:
    return [environment.python, str(PROGRAMS / "http_server.py"), port]


def _client(name: str) -> Callable[[Environment, str], list[str]]:
    def command(environment: Environment, address: str) -> list[str]:
        return [environment.program("python"), str(PROGRAMS / name), address]

    return command


PROGRAM_LIST = (
    Program("gunicorn", "gunicorn, one gthread worker with 4 threads, WSGI", _gunicorn),
    Program("uvicorn", "uvicorn, one event loop, ASGI", _uvicorn),
    Program("http.server", "ThreadingHTTPServer", _http_server, needs_packages=False),
    _ruby("puma", "Puma, 5 threads, Rack"),
    _ruby("puma-cluster", "Puma, a worker process with 5 threads, Rack", "--workers", "1"),
    Program(
        "redis",
        "redis-py, 4 threads, a SET and a GET a request",
        _client("redis_client.py"),
        serves_http=False,
        database=databases.redis,
        why_no_database=databases.why_no_redis,
    ),
    Program(
        "postgresql",
        "psycopg 3, 4 threads, a SELECT by key a request",
        _client("postgres_client.py"),
        serves_http=False,
        database=databases.postgres,
        why_no_database=databases.why_no_postgres,
    ),
)
