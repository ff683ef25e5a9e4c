"""The prerequisites of a sandbox on this machine: system packages and programs, installed concurrently."""

from __future__ import annotations

import contextlib
import threading
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


def gather(names: Iterable[str], progress: Progress, *, nodes: bool = False, download: bool = True) -> None:
    """Install these programs; with `nodes`, also the system packages of real nodes, if possible."""
    built = [program.name for program in obtain.lacking(names) if program.module]
    # apt-get waits for the network, and Go for CPUs: together they take as long as the slower one.
    with processes.unwinding(), ThreadPoolExecutor(1, "packages") as pool:
        installing = pool.submit(_install, progress, nodes)
        obtain.obtain(built, progress, download=download)
        installing.result()


@contextlib.contextmanager
def obtaining(
    names: Iterable[str], progress: Progress, *, nodes: bool = False, download: bool = True
) -> Iterator[Callable[[Iterable[str]], None]]:
    """Install these programs in the background while the block runs; cancelled if the block fails.

    The block gets a function that waits until the programs that it names are there, and shows the progress
    meanwhile; otherwise nothing is said. With `nodes`, also the system packages of real nodes, if possible.
    """
    built = [program.name for program in obtain.lacking(names) if program.module]
    kept = threading.Condition()

    def tell(_: object = None) -> None:
        with kept:
            kept.notify_all()

    progress.hold_back()
    with processes.unwinding(), ThreadPoolExecutor(2, "programs") as pool:
        packages = pool.submit(_install, progress, nodes)
        programs = pool.submit(obtain.obtain, built, progress, download=download, kept=tell)
        programs.add_done_callback(tell)

        def wait(wanted: Iterable[str]) -> None:
            wanted = list(wanted)
            progress.go_on()
            try:
                packages.result()
                with kept:
                    kept.wait_for(lambda: programs.done() or not obtain.lacking(wanted))
                if obtain.lacking(wanted):
                    programs.result()
                    obtain.obtain(wanted, progress, download=download)
            finally:
                progress.hold_back()

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
