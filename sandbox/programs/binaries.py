"""The programs that the sandbox runs: required versions, and where this machine has them."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.progress import Progress
from windowbox.errors import Missing

Version = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A program, the version that is tested, and the oldest version that is accepted."""

    name: str
    version: str
    oldest: Version
    ask: tuple[str, ...] = ("--version",)
    module: str | None = None
    """Its folder under deploy/binaries; None if it comes as a package of the system."""
    package: str = ""
    nodes: bool = False
    """Whether only nodes and tests need it."""


_KUBERNETES, _GARDENER = "1.36.3", "1.150.0"
_VERSION = ("--version",)
PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in (
        # Schedules that survive a restart of the server came with 2.14.
        Program("nats-server", "2.15.2", (2, 14), module="nats", package="github.com/nats-io/nats-server/v2"),
        Program("etcd", "3.7.0", (3, 5), module="etcd", package="go.etcd.io/etcd/server/v3"),
        *(
            Program(name, _KUBERNETES, (1, 33), ask, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", nodes)
            for name, ask, nodes in (
                ("kube-apiserver", _VERSION, False),
                ("kube-controller-manager", _VERSION, False),
                ("kubectl", ("version", "--client"), False),
                ("kubelet", _VERSION, True),
                ("kube-proxy", _VERSION, True),
                ("kube-scheduler", _VERSION, True),
            )
        ),
        Program("kwok", "0.8.0", (0, 7), module="kwok", package="sigs.k8s.io/kwok/cmd/kwok", nodes=True),
        Program("windowbox-echo", "1.0.0", (1, 0), module="echo", package=".", nodes=True),
        # Only tests compare with it. It has no version flag; its help prints its path, which contains one.
        Program(
            "machine-controller-manager", "0.62.1", (0, 62), ("--help",), "machine-controller-manager",
            "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager", nodes=True,
        ),
        # Provisions volumes in Shoots of the sandbox.
        Program(
            "local-path-provisioner", "0.0.30", (0, 0, 24), module="local-path-provisioner",
            package="github.com/rancher/local-path-provisioner", nodes=True,
        ),
        # Applies ManagedResources, in Shoots of the sandbox and in tests.
        Program(
            "gardener-resource-manager", _GARDENER, (1, 140), module="gardener",
            package="github.com/gardener/gardener/cmd/gardener-resource-manager",
        ),
        # For tests only: gardenlet's code as a client, the controllers of gardenlet and gardener-operator
        # that install windowbox, and the two programs that windowbox replaces.
        *(
            Program(name, _GARDENER, (1, 140), module="gardener", package=f"./{name}", nodes=True)
            for name in ("gardenlet-client", "gardener-installer", "provider-local", "admission-local")
        ),
        # Only tests install the chart.
        Program("helm", "4.2.4", (3, 14), ("version",), "helm", "helm.sh/helm/v4/cmd/helm"),
        Program("named", "9.18", (9, 16), ("-v",)),
        Program("dig", "9.18", (9, 16), ("-v",)),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    path: Path
    version: Version


@dataclass(frozen=True)
class TooOld:
    path: Path
    version: Version


def cache() -> Path:
    """The cache of programs that were downloaded or built, shared by all sandboxes of this user."""
    if explicit := os.environ.get("WINDOWBOX_CACHE"):
        return Path(explicit)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "windowbox"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windowbox"


def architecture() -> str:
    """The architecture of this machine, in the words of Go and of container images."""
    machine = platform.machine()  # macOS says arm64, too
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def cached(program: Program) -> Path:
    return cache() / "bin" / f"{program.name}-{program.version}" / program.name


def setting(program: Program) -> str:
    """The environment variable that names the program explicitly."""
    return "WINDOWBOX_BIN_" + program.name.upper().replace("-", "_")


def find(name: str) -> Path:
    """The program `name`, new enough; Missing with the remedy if this machine has none."""
    found = look(name)
    if isinstance(found, Found):
        return found.path
    program = PROGRAMS[name]
    if isinstance(found, TooOld):
        old, wanted = text(found.version), text(program.oldest)
        raise Missing(f"{found.path} is version {old}, {wanted} or newer is needed: run `make setup`")
    raise Missing(f"{name} is not installed: run `make setup`, or set {setting(program)} to its path")


def look(name: str) -> Found | TooOld | None:
    """The first program `name` that is new enough, or the first that is too old, or None."""
    program, old = PROGRAMS[name], None
    for path in _places(program):
        version = version_of(program, path)
        if version is None:
            continue
        if version >= program.oldest:
            return Found(path, version)
        old = old or TooOld(path, version)
    return old


def version_of(program: Program, path: Path) -> Version | None:
    """The version that the program at `path` reports; None if it is no such program."""
    try:
        return _asked(path, program.ask, path.stat().st_mtime_ns)
    except OSError:
        return None


def unconfined(path: Path) -> Path:
    """A copy of the program that AppArmor does not confine.

    Debian and Ubuntu confine named, by its path, to the folders of the system's own name server.
    """
    profile = Path("/etc/apparmor.d") / str(path).strip("/").replace("/", ".")
    try:
        enabled = Path("/sys/module/apparmor/parameters/enabled").read_text().strip() == "Y"
    except OSError:
        enabled = False
    if not (enabled and profile.exists()):
        return path
    version = version_of(PROGRAMS[path.name], path)
    copy = cache() / "bin" / f"{path.name}-{text(version or ())}" / path.name
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        temporary = copy.with_suffix(f".{os.getpid()}")
        shutil.copy(path, temporary)
        temporary.replace(copy)
    return copy


def text(version: Version) -> str:
    return ".".join(map(str, version))


def _places(program: Program) -> Iterator[Path]:
    if explicit := os.environ.get(setting(program)):
        if version_of(program, Path(explicit)) is None:
            raise Missing(f"{setting(program)} is {explicit}, which does not run: set it to a {program.name}")
        # A program that the user names is used, or reported as too old: no other one replaces it.
        yield Path(explicit)
        return
    # Debian keeps servers in folders that are not in the PATH of a user.
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    if on_path := shutil.which(program.name, path=search):
        yield Path(on_path)
    yield cached(program)


@functools.cache
def _asked(path: Path, arguments: tuple[str, ...], _changed: int) -> Version | None:
    try:
        answer = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bv?(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout + answer.stderr)
    return tuple(int(part) for part in match.groups() if part) if match else None


@contextlib.contextmanager
def cache_lock(part: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of `part` of the cache. The kernel releases it when the holder dies."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{part}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"  another process is getting {part}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
