"""Get the programs that this machine lacks: built from their Go modules, into the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from windowbox.errors import Missing, Unreachable
from windowbox.sandbox import binaries, packages
from windowbox.sandbox.binaries import Found, Program

_MODULES = Path(__file__).parents[2] / "deploy" / "binaries"
_PATIENCE = 3600
_REMIND_AFTER = 30

Say = Callable[[str], None]


def obtain(names: Iterable[str], say: Say) -> None:
    """Have all programs `names` here, new enough. Several processes may ask at once."""
    lacking = [binaries.PROGRAMS[name] for name in names if not isinstance(binaries.look(name), Found)]
    if system := [program.name for program in lacking if program.module is None]:
        packages.install(say)
        for name in system:
            binaries.find(name)
    built = sorted((program for program in lacking if program.module), key=lambda p: p.module or "")
    for module, programs in itertools.groupby(built, key=lambda program: program.module):
        assert module is not None
        _build(module, list(programs), say)


def _build(module: str, programs: list[Program], say: Say) -> None:
    go = shutil.which("go")
    names = ", ".join(program.name for program in programs)
    if go is None:
        raise Missing(f"{names}: not on this machine, and to build it Go is needed: {_how_to_get_go()}")
    with _lock(module, say):
        # Whoever held the lock before us may have built the same.
        programs = [program for program in programs if not binaries.cached(program).exists()]
        if programs:
            _compile(go, module, programs, say)


def _compile(go: str, module: str, programs: list[Program], say: Say) -> None:
    kept = binaries.cache() / "bin"
    kept.mkdir(parents=True, exist_ok=True)
    names = ", ".join(f"{program.name} {program.version}" for program in programs)
    with tempfile.TemporaryDirectory(dir=kept, prefix=".build-") as folder:
        target = Path(folder)
        with (target / "log").open("wb") as log:
            builder = subprocess.Popen(
                [go, *_arguments(module, programs, target)],
                cwd=_MODULES / module,
                env={**os.environ, "CGO_ENABLED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            _watch(builder, f"building {names} (once; the first time takes minutes)", say)
        if builder.returncode:
            said = (target / "log").read_text(errors="replace").strip().splitlines()[-3:]
            raise Unreachable(f"go could not build {names}: {' | '.join(said)}")
        for program in programs:
            path = binaries.cached(program)
            path.parent.mkdir(exist_ok=True)
            os.replace(target / program.name, path)


def _arguments(module: str, programs: list[Program], target: Path) -> list[str]:
    flags = ["-s", "-w"]
    if module == "kubernetes":
        # Without a version of its own the server calls itself v0.0.0-master, which clients refuse.
        version = programs[0].version
        major, minor, _ = version.split(".")
        variables = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
        flags += [f"-X k8s.io/component-base/version.{key}={value}" for key, value in variables.items()]
    # go names a program after the end of its package's path, which for etcd is "server".
    output = str(target / programs[0].name) if module == "etcd" else f"{target}{os.sep}"
    return [
        "build", "-trimpath", "-ldflags", " ".join(flags), "-o", output, *(p.package for p in programs)
    ]  # fmt: skip


def _watch(builder: subprocess.Popen[bytes], what: str, say: Say) -> None:
    """Wait for the builder, and let people see that it goes on."""
    began, reminded = time.monotonic(), 0.0
    live = sys.stdout.isatty()
    say(what)
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                builder.wait(timeout=1)
                break
            spent = time.monotonic() - began
            if spent > _PATIENCE:
                raise Unreachable(f"{what}: not done after {spent / 60:.0f} minutes")
            if live:
                print(f"\r  {spent:.0f} s ", end="", flush=True)
            elif spent - reminded >= _REMIND_AFTER:
                reminded = spent
                say(f"  still building, {spent:.0f} s")
    finally:
        if builder.poll() is None:
            builder.kill()
            builder.wait()
    if live:
        print("\r", end="")
    say(f"  {time.monotonic() - began:.0f} s in all")


@contextlib.contextmanager
def _lock(module: str, say: Say) -> Iterator[None]:
    binaries.cache().mkdir(parents=True, exist_ok=True)
    with (binaries.cache() / f"{module}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is building {module}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _how_to_get_go() -> str:
    if sys.platform == "darwin":
        return "brew install go"
    return "install the package golang of your distribution, or the archive from the Go project"
