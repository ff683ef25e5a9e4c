"""`python -m sandbox.setup`: install all programs of the sandbox and its tests."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sandbox import processes, stages
from sandbox.nodes import hostresources
from sandbox.programs import binaries, obtain, openssh, packages
from sandbox.programs.binaries import PROGRAMS, Found
from sandbox.progress import Progress
from windowbox.errors import WindowboxError


def main(arguments: list[str]) -> int:
    """Install everything that this machine can use; a failure does not stop the others."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.setup", description=__doc__)
    parser.add_argument(
        "--download", action=argparse.BooleanOptionalAction, default=True,
        help="whether official binaries are used, not only compiled ones",
    )  # fmt: skip
    download = parser.parse_args(arguments).download
    progress, complaints = Progress(_say), list[str]()
    reason = hostresources.unsuited()
    left_out = [name for name in hostresources.PROGRAMS if reason and name not in stages.SIMULATED_PROGRAMS]
    if left_out:
        progress.say(f"Going on without real nodes, which need {reason}: {', '.join(left_out)} left out")
    wanted = [program for program in PROGRAMS.values() if program.name not in left_out]
    with processes.unwinding(), ThreadPoolExecutor(1, "packages") as pool:
        installing = pool.submit(_install, progress)
        try:
            obtain.obtain((program.name for program in wanted if program.module), progress, download=download)
        except WindowboxError as error:
            complaints.append(str(error))
        complaints = [*installing.result(), *complaints]
    for name in (program.name for program in wanted):
        found = binaries.look(name)
        if isinstance(found, Found):
            _say(f"  {name:<24} {binaries.text(found.version):<8} {found.path}")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def _install(progress: Progress) -> list[str]:
    """Install system packages: BIND is required, the others are optional."""
    complaints = []
    try:
        packages.install(progress)
    except WindowboxError as error:
        complaints.append(str(error))
    extras: dict[str, Callable[[Progress], None]] = {
        "tests with Docker, SSH and a browser": packages.install_for_tests
    }
    if not hostresources.unsuited():
        extras |= {"real nodes": packages.install_for_nodes, "SSH in Bastions": openssh.unpack}
    for what, install in extras.items():
        try:
            install(progress)
        except WindowboxError as error:
            progress.say(f"Going on without {what}: {error}")
    return complaints


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
