"""The programs that the sandbox runs: required versions, and where this machine has them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import time
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
    """Its folder, in deploy/binaries unless absolute; None if it comes as a package of the system."""
    package: str = ""
    """Its main package, in this module."""
    nodes: bool = False
    """Whether only nodes and tests need it."""
    stamps: tuple[str, ...] = ()
    """Variables of Go, and the parts of the version that they get."""
    effort: int = 0
    """CPU seconds of compiling what those before it in the table have not; measured on a slow machine."""
    output: str = ""
    """The name that Go gives it, if that is not its own: the last part of its package."""

    @property
    def compiled(self) -> str:
        """The name of the file that Go writes."""
        return self.output or self.name

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.name} {self.version}"


_KUBERNETES, _GARDENER = "1.36.3", "1.150.0"
_VERSION = ("--version",)
_ALL = "programs"
"""The module of most programs, so that what they share is compiled once."""
_STAMPS = (
    "k8s.io/component-base/version.gitVersion=v{version}",
    "k8s.io/component-base/version.gitMajor={major}",
    "k8s.io/component-base/version.gitMinor={minor}",
)
"""Without a version, programs of Kubernetes call themselves v0.0.0-master, which clients refuse."""

# In the order in which the demo needs them: so they are compiled.
PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in (
        # Schedules that survive a restart of the server came with 2.14.
        Program(
            "nats-server", "2.15.2", (2, 14), module=_ALL,
            package="github.com/nats-io/nats-server/v2", effort=48,
        ),
        Program("etcd", "3.7.0", (3, 5), module=_ALL, package="./etcd", effort=48),
        # In an image of every node, whose containerd waits for it.
        Program(
            "windowbox-echo", "1.0.0", (1, 0), module=_ALL, package="./windowbox-echo", nodes=True, effort=1
        ),
        *(
            Program(
                name, _KUBERNETES, (1, 33), ask, _ALL, f"k8s.io/kubernetes/cmd/{name}", nodes, _STAMPS, effort
            )
            for name, ask, nodes, effort in (
                ("kube-apiserver", _VERSION, False, 300),
                ("kube-controller-manager", _VERSION, False, 90),
                ("kubelet", _VERSION, True, 25),
                ("kube-proxy", _VERSION, True, 9),
                ("kube-scheduler", _VERSION, True, 5),
                ("kubectl", ("version", "--client"), False, 34),
            )
        ),
        # Applies ManagedResources, in Shoots of the sandbox and in tests.
        Program(
            "gardener-resource-manager", _GARDENER, (1, 140), module=_ALL,
            package="./gardener-resource-manager", stamps=_STAMPS, effort=50,
        ),
        # Provisions volumes in Shoots of the sandbox. It imports a module whose name differs from another's
        # in capitals only, so Go does not compile it together with others.
        Program(
            "local-path-provisioner", "0.0.30", (0, 0, 24), module="local-path-provisioner",
            package="github.com/rancher/local-path-provisioner", nodes=True,
            stamps=("main.VERSION={version}",), effort=12,
        ),
        # Plays nodes where there are none, or not enough.
        Program(
            "kwok", "0.8.0", (0, 7), module=_ALL, package="sigs.k8s.io/kwok/cmd/kwok", nodes=True, effort=16
        ),
        # For tests only: gardenlet's code as a client, the controllers of gardenlet and gardener-operator
        # that install windowbox, and the two programs that windowbox replaces.
        *(
            Program(name, _GARDENER, (1, 140), module=_ALL, package=f"./{name}", nodes=True, stamps=_STAMPS)
            for name in (
                "gardenlet-client", "gardenlet-machines", "gardener-installer", "provider-local",
                "admission-local",
            )
        ),
        # Only tests install the chart.
        Program(
            "helm", "4.2.4", (3, 14), ("version",), _ALL, "helm.sh/helm/v4/cmd/helm",
            stamps=("helm.sh/helm/v4/internal/version.version=v{version}",),
        ),
        # Only tests compare with it. It has no version flag; its help prints its path, which contains one.
        Program(
            "machine-controller-manager", "0.62.1", (0, 62), ("--help",), "machine-controller-manager",
            "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager", nodes=True,
        ),
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
    for pause in (0.1, 0.4, 2, 0):
        try:
            answer = subprocess.run(
                [path, *arguments],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False,
            )  # fmt: skip
            break
        except (OSError, subprocess.TimeoutExpired) as error:
            # A child that another thread has just forked may hold the new file open for writing.
            if not (pause and isinstance(error, OSError) and error.errno == errno.ETXTBSY):
                return None
            time.sleep(pause)
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
