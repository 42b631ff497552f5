"""What is handed out: each wheel has the extension module and a preloaded library that loads
everywhere, whether it was built from the repository or from the source distribution."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = "deconvoy/libdeconvoy_preload.so"

# The oldest C library that it has to load beside.
OLDEST_GLIBC = (2, 17)


def build(what: str, source: Path, out: Path) -> Path:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    # Cargo's own folder, so that a source distribution need not compile all that it depends on.
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    subprocess.run(
        [sys.executable, "-m", "build", f"--{what}", "--no-isolation", "-o", out, source],
        env=os.environ | {"CARGO_TARGET_DIR": target},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session", params=["repository", "sdist"])
def wheel(
    request: pytest.FixtureRequest, sdist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    if request.param == "repository":
        return build("wheel", ROOT, out)
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    return build("wheel", source, out)


@pytest.fixture(scope="session")
def library(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(LIBRARY, tmp_path_factory.mktemp("library")))


def readelf(*arguments: str | Path) -> str:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    return subprocess.check_output(["readelf", "-W", *arguments], text=True)


def test_the_source_distribution_is_whole(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"Cargo.toml", "Cargo.lock", "pyproject.toml", "hatch_build.py", "PKG-INFO"}
    wanted |= {"LICENSE-MIT", "LICENSE-APACHE"}
    rust = subprocess.check_output(["git", "ls-files", "crates", "scenarios"], cwd=ROOT, text=True)
    assert (wanted | set(rust.split())) - names == set()
    assert not [name for name in names if name.endswith((".so", ".trace")) or "target/" in name]


def test_the_wheel_has_all_parts(wheel: Path) -> None:
    assert re.fullmatch(r"deconvoy-[\d.]+-cp311-abi3-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert {
        LIBRARY,
        "deconvoy/_native.abi3.so",
        "deconvoy/_native.pyi",
        "deconvoy/py.typed",
    } <= names
    assert any(name.startswith("deconvoy/scenarios/messaging/") for name in names)
    assert "License-Expression: MIT OR Apache-2.0" in text
    assert "Requires-Python: >=3.11" in text


def test_the_wheel_works_alone(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    shutil.rmtree(next(tmp_path.glob("*.dist-info")))
    start = "from deconvoy.cli import main; main()"
    look = ["run", "--", sys.executable, "-c", "print(open('/proc/self/maps').read())"]
    done = subprocess.run(
        [sys.executable, "-c", start, *look],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / LIBRARY) in done.stdout


def test_the_library_loads_beside_an_old_c_library(library: Path) -> None:
    versions = re.findall(r"Name: (\w+?)_([\d.]+) ", readelf("--version-info", library))
    assert versions
    for name, version in versions:
        assert name == "GLIBC", name
        assert tuple(int(part) for part in version.split(".")) <= OLDEST_GLIBC, version
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", library)))
    assert needed <= {"libc.so.6", "ld-linux-aarch64.so.1"}


def test_the_library_cannot_panic(library: Path) -> None:
    symbols = readelf("--symbols", library)
    assert ".symtab" in symbols, "stripped: nothing can be told"
    assert re.findall(r"\S*panic\S*", symbols) == []


def test_without_cargo_one_line_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", tmp_path, ROOT],
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    said = [line for line in (done.stdout + done.stderr).splitlines() if "install cargo" in line]
    assert len(said) == 1
    assert 'Traceback (most recent call last):\n  File "' + str(ROOT) not in done.stderr
    assert not list(tmp_path.iterdir())
