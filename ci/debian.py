"""Debian's packages of any suite and architecture, unpacked into folders of their own."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from messages import UserError, say

KEYRINGS = [
    Path(f"/usr/share/keyrings/debian-archive-{k}.gpg") for k in ("keyring", "removed-keys")
]


def environment() -> dict[str, str]:
    """The caller's, less what would reach into the tools and interpreters run from here."""
    foreign = ("PYTHON", "LD_", "APT_CONFIG", "CFLAGS", "CPPFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


class Shell:
    """Runs commands; all they print goes to one log, and the telling line of it to the error."""

    def __init__(self, log: TextIO) -> None:
        self.log = log

    def run(self, *argv: str | Path, cwd: Path | None = None, **env: str) -> None:
        print("+", *argv, file=self.log, flush=True)
        start = self.log.tell()
        output: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": self.log,
            "stderr": self.log,
        }
        try:
            done = subprocess.run(argv, cwd=cwd, env=environment() | env, **output)
        except FileNotFoundError:
            raise UserError(f"`{argv[0]}` is not installed") from None
        if done.returncode:
            self.log.seek(start)
            lines = [line.strip() for line in self.log if line.strip()] or ["it said nothing"]
            telling = [line for line in lines if re.match(r"E: |.*NO_PUBKEY|(.*: )?error: ", line)]
            said = (telling or lines[-1:])[0]
            raise UserError(f"`{' '.join(map(str, argv[:6]))}`: {said} (log: {self.log.name})")


def mirrors() -> list[str]:
    """The addresses in the host's own apt configuration, then archive paths beside them."""
    listing = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)")
    try:
        text = subprocess.check_output((*listing, "Identifier: Packages"), text=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        raise UserError("this host has no working apt; only Debian and its kin will do") from None
    rows = [line.split(" ", 1) for line in text.splitlines()]
    uris = dict.fromkeys(uri.rstrip("/") for uri, suite in rows if "security" not in suite)
    debian = [uri for uri in uris if uri.endswith("/debian")]
    archives = ("/debian-archive/debian", "/archive/debian")
    beside = [uri.removesuffix("/debian") + path for uri in debian for path in archives]
    return [*debian, *(uri for uri in uris if uri not in debian), *beside]


class Apt:
    """apt-get with sources, state and cache of its own under `home`; keeps the host's proxies.
    `architectures`: the first is that of packages that name none; the host's if none is given."""

    def __init__(self, home: Path, shell: Shell, *architectures: str) -> None:
        self.home, self.shell = home, shell
        (home / "state/lists/partial").mkdir(parents=True)
        (home / "cache/archives/partial").mkdir(parents=True)
        (home / "no-package-is-installed").touch()
        architecture = ""
        if architectures:
            all_of_them = " ".join(f'"{name}";' for name in architectures)
            architecture = f'APT::Architecture "{architectures[0]}"; '
            architecture += f"APT::Architectures {{ {all_of_them} }};"
        (home / "apt.conf").write_text(
            f"""
            Dir::State "{home}/state";
            Dir::State::status "{home}/no-package-is-installed";
            Dir::Cache "{home}/cache";
            Dir::Etc::sourcelist "{home}/sources.list";
            Dir::Etc::sourceparts "/dev/null";
            Dir::Etc::preferences "/dev/null";
            Dir::Etc::preferencesparts "/dev/null";
            APT::Sandbox::User "root";
            APT::Update::Error-Mode "any";
            Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
            {architecture}
            #clear APT::Update::Post-Invoke;
            #clear APT::Update::Post-Invoke-Success;
            """
        )

    def get(self, *arguments: str) -> None:
        conf = self.home / "apt.conf"
        self.shell.run("apt-get", "-c", conf, "-y", *arguments, cwd=self.home)

    def update(self, suite: str, *, with_sources: bool) -> None:
        """Read the index of the first of the host's mirrors that has the suite."""
        keyrings = ",".join(str(path) for path in KEYRINGS if path.exists())
        errors: list[str] = []
        for uri in mirrors():
            for trust in [f"signed-by={keyrings}"] * bool(keyrings) + ["trusted=yes"]:
                if trust == "trusted=yes":
                    if keyrings and "NO_PUBKEY" not in errors[-1]:
                        continue
                    say(f"WARNING: {suite} of {uri} is taken on trust: its keys are missing")
                line = f"[{trust} check-valid-until=no] {uri} {suite} main\n"
                sources = f"deb {line}" + with_sources * f"deb-src {line}"
                (self.home / "sources.list").write_text(sources)
                try:
                    return self.get("update")
                except UserError as error:
                    errors.append(str(error))
        why = [*errors, "it names no mirror"][0]
        raise UserError(f"the host's apt configuration gave no {suite}: {why}")

    def from_pool(self, path: str, sha256: str) -> Path:
        """A file that the index need not name any more, of the first mirror that has it."""
        helper, target = Path("/usr/lib/apt/apt-helper"), self.home / Path(path).name
        errors: list[str] = []
        for uri in mirrors():
            try:
                address = f"{uri}/pool/main/{path}"
                self.shell.run(helper, "download-file", address, target, f"SHA256:{sha256}")
                return target
            except UserError as error:
                errors.append(str(error))
        raise UserError([*errors, "the host's apt names no mirror"][-1])

    def download(self, packages: Sequence[str]) -> list[Path]:
        """The packages and all they depend on."""
        self.get("install", "--download-only", "--no-install-recommends", *packages)
        return sorted((self.home / "cache/archives").glob("*.deb"))


def unpack(debs: Sequence[Path], root: Path) -> None:
    for part in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / part).mkdir(parents=True)
        (root / part).symlink_to(f"usr/{part}")
    # Not `dpkg -x`: it replaces the links /bin, /lib and so on by folders.
    unused = [f"--exclude=./usr/share/{folder}" for folder in ("doc", "man", "info", "locale")]
    tar = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", *unused, f"-C{root}"]
    for deb in debs:
        with subprocess.Popen(
            ("dpkg-deb", "--fsys-tarfile", deb), stdout=subprocess.PIPE
        ) as source:
            done = subprocess.run(tar, stdin=source.stdout)
        if done.returncode or source.returncode:
            raise UserError(f"could not unpack {deb.name}; is the disk full?")
    for path in root.rglob("*"):
        if path.is_symlink() and (target := path.readlink()).is_absolute():
            path.unlink()
            inside = root / target.relative_to("/")
            path.symlink_to(os.path.relpath(inside, path.parent.resolve()))


def loader(root: Path) -> Path:
    """ld.so, in the folder that has libc as well: /usr/lib/MULTIARCH of the root."""
    return next(root.glob("usr/lib/*/ld-linux*.so.*"))


def need(shell: Shell, **packages_of: str) -> None:
    """Installs the host's packages (one or more, with blanks) for these commands, where it may."""
    lacking = [packages for name, packages in packages_of.items() if not shutil.which(name)]
    missing = " ".join(lacking).split()
    if not missing:
        return
    install = ("apt-get", "install", "-y", "--no-install-recommends", *missing)
    if os.geteuid() != 0:
        raise UserError(f"{' '.join(missing)} is missing; ask root for `{' '.join(install)}`")
    say(f"{' '.join(missing)}: installing with the host's own apt")
    shell.run("apt-get", "update")
    shell.run(*install)
