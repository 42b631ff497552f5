"""A user's mistake: one line on stderr, status 2, nothing run, nothing written."""

import stat
from pathlib import Path

import pytest
from commandline import Deconvoy
from deconvoy._native import POLICY_BYTES, TRACE_VERSION


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_refused(deconvoy: Deconvoy, folder: Path, said: str, *arguments: str | Path) -> None:
    before, entries = files(folder), sorted(folder.rglob("*"))
    done = deconvoy(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("deconvoy: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert len(done.stderr) < 500
    assert files(folder) == before
    assert sorted(folder.rglob("*")) == entries


@pytest.mark.parametrize("verb", ["run", "trace"])
@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("no command", []),
        ("no command", ["--"]),
        ("no command", ["--", ""]),
        ("no such command", ["--", "no-such-command-anywhere"]),
        ("no such file", ["--", "./nothing"]),
        ("a folder", ["--", "./folder"]),
        ("not executable", ["--", "./plain"]),
        ("/no/such/interpreter", ["--", "./orphan"]),
        ("#!", ["--", "./nonsense"]),
        ("no policy", ["--policy", "nosuch", "--", "touch", "written"]),
        ("no policy", ["--policy", "", "--", "touch", "written"]),
        ("interval must be", ["--policy", "timeout:interval=0ns", "--", "touch", "written"]),
        ("not a time", ["--policy", "timeout:interval=fast", "--", "touch", "written"]),
        ("no option", ["--policy", "timeout:speed=1ms", "--", "touch", "written"]),
        ("not a priority", ["--policy", "priority:io=999", "--", "touch", "written"]),
        ("at most", ["--policy", "priority:" + "x" * POLICY_BYTES + "=1", "--", "touch", "w"]),
        ("No such option", ["--nosuch", "--", "touch", "written"]),
    ],
)
def test_commands(
    deconvoy: Deconvoy, tmp_path: Path, verb: str, said: str, arguments: list[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("print()\n")
    (tmp_path / "orphan").write_text("#!/no/such/interpreter\n")
    (tmp_path / "nonsense").write_bytes(bytes(range(256)))
    for name in ("orphan", "nonsense"):
        (tmp_path / name).chmod(0o755)
    assert_refused(deconvoy, tmp_path, said, verb, *arguments)


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("not empty", ["-o", "full"]),
        ("is a file", ["-o", "file"]),
        ("cannot make", ["-o", "no/such/folder"]),
        ("not a size", ["--size", "much"]),
        ("must be from", ["--size", "1"]),
        ("must be from", ["--size", "1000G"]),
        ("longer than", ["-o", "x/" * 1100]),
    ],
)
def test_trace(deconvoy: Deconvoy, tmp_path: Path, said: str, arguments: list[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/precious").write_text("keep me\n")
    (tmp_path / "file").write_text("keep me\n")
    assert_refused(deconvoy, tmp_path, said, "trace", *arguments, "--", "touch", "written")


@pytest.fixture
def traced(deconvoy: Deconvoy, tmp_path: Path, python: str) -> bytes:
    """The bytes of a good trace."""
    done = deconvoy("trace", "-o", "good", "--", python, "-c", "pass")
    assert done.returncode == 0, done.stderr
    (trace,) = (tmp_path / "good").iterdir()
    return trace.read_bytes()


@pytest.mark.parametrize("arguments", [["report"], ["export", "-o", "out.pftrace"]])
@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("no such file", "nothing.trace"),
        ("empty", "empty.trace"),
        ("not a deconvoy trace", "other.trace"),
        ("cut short", "short.trace"),
        ("newer", "newer.trace"),
        ("a folder that `deconvoy trace` has made", "folder"),
        ("neither", "/dev/null"),
    ],
)
def test_trace_files(
    deconvoy: Deconvoy,
    tmp_path: Path,
    traced: bytes,
    arguments: list[str],
    said: str,
    name: str,
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.trace").touch()
    (tmp_path / "other.trace").write_bytes(Path("/bin/sh").read_bytes())
    (tmp_path / "short.trace").write_bytes(traced[:5000])
    newer = traced[:8] + (TRACE_VERSION + 1).to_bytes(4, "little") + traced[12:]
    (tmp_path / "newer.trace").write_bytes(newer)
    assert_refused(deconvoy, tmp_path, said, *arguments, name)


def test_a_process_that_is_not_there(deconvoy: Deconvoy, tmp_path: Path, traced: bytes) -> None:
    assert_refused(deconvoy, tmp_path, "no trace of process 1", "report", "good", "--process", "1")


def test_export(deconvoy: Deconvoy, tmp_path: Path, traced: bytes) -> None:
    (tmp_path / "there.json").write_text("keep me\n")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "a.deconvoy").mkdir()
    export = ("export", "good", "-o")
    assert_refused(deconvoy, tmp_path, "exists", *export, "there.json")
    assert_refused(deconvoy, tmp_path, "folder", *export, "folder.json", "--force")
    assert_refused(deconvoy, tmp_path, "end it in", *export, "out.txt")
    perfetto = ("--format", "perfetto", "--force")
    assert_refused(deconvoy, tmp_path, "no regular file", *export, "/dev/null", *perfetto)
    assert_refused(deconvoy, tmp_path, "cannot write", *export, "no/such/out.json")


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("no verb", []),
        ("No such command", ["nosuch"]),
        ("No such option", ["policies", "--nosuch"]),
        ("Missing argument", ["report"]),
        ("Missing option", ["export", "x"]),
        ("no such command", ["doctor", "--", "no-such-command-anywhere"]),
    ],
)
def test_verbs(deconvoy: Deconvoy, tmp_path: Path, said: str, arguments: list[str]) -> None:
    assert_refused(deconvoy, tmp_path, said, *arguments)


def test_an_unreadable_trace_of_another_user(
    deconvoy: Deconvoy, tmp_path: Path, traced: bytes
) -> None:
    path = tmp_path / "secret.trace"
    path.write_bytes(traced)
    path.chmod(0)
    try:
        path.open("rb").close()
    except PermissionError:
        pass
    else:
        pytest.skip("this user may read everything")
    done = deconvoy("report", path)
    path.chmod(stat.S_IRUSR)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
