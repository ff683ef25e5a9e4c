"""The prerequisites of a sandbox on this machine: system packages and programs, installed concurrently."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from sandbox import processes, stages
from sandbox.nodes import hostresources
from sandbox.programs import obtain, openssh, packages
from sandbox.progress import Progress
from windowbox.errors import WindowboxError

SERVERS = (*stages.PROGRAMS, "dig")
TOOLS = ("kubectl",)


def programs(*, nodes: bool, simulated: bool) -> list[str]:
    """The programs of a sandbox with these nodes besides its servers, and of its users."""
    more = [*(hostresources.PROGRAMS if nodes else ()), *(stages.SIMULATED_PROGRAMS if simulated else ())]
    return list(dict.fromkeys([*more, *TOOLS]))


def gather(names: Iterable[str], progress: Progress, *, nodes: bool = False, download: bool = False) -> None:
    """Install these programs; with `nodes`, also the system packages of real nodes, if possible."""
    built = [program.name for program in obtain.lacking(names) if program.module]
    # apt-get waits for the network, and Go for CPUs: together they take as long as the slower one.
    with processes.unwinding(), ThreadPoolExecutor(1, "packages") as pool:
        installing = pool.submit(_install, progress, nodes)
        obtain.obtain(built, progress, download=download)
        installing.result()


@contextlib.contextmanager
def in_background(
    names: Iterable[str], progress: Progress, *, download: bool
) -> Iterator[Callable[[], None]]:
    """Install these programs in the background while the block runs; cancelled if the block fails.

    Quiet until the block calls the function that it gets, which shows the progress, and waits for the end.
    """
    progress.hold_back()
    with processes.unwinding(), ThreadPoolExecutor(1, "programs") as pool:
        future = pool.submit(obtain.obtain, names, progress, download=download)

        def wait() -> None:
            progress.go_on()
            future.result()

        try:
            yield wait
        except BaseException:
            progress.cancelled.set()
            raise


def _install(progress: Progress, nodes: bool) -> None:
    try:
        packages.install(progress, nodes=nodes)
    except WindowboxError as error:
        if not nodes or obtain.lacking(("named", "dig")):
            raise
        progress.say(f"  going on without real nodes: {error}")
    if nodes:
        try:
            openssh.unpack(progress)
        except WindowboxError as error:
            progress.say(f"  going on without SSH in Bastions: {error}")
