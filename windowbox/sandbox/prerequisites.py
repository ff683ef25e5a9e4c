"""All that a sandbox needs of this machine: packages of the system and programs, got side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from windowbox.errors import WindowboxError
from windowbox.sandbox import obtain, openssh, packages, stages
from windowbox.sandbox.nodes import site
from windowbox.sandbox.progress import Progress

SERVERS = (*stages.PROGRAMS, "dig")
TOOLS = ("kubectl",)


def programs(*, nodes: bool, simulated: bool) -> list[str]:
    """What a sandbox with such nodes runs, beside its servers, or tells people to run."""
    more = [*(site.PROGRAMS if nodes else ()), *(stages.SIMULATED_PROGRAMS if simulated else ())]
    return list(dict.fromkeys([*more, *TOOLS]))


def gather(names: Iterable[str], progress: Progress, *, nodes: bool = False, download: bool = False) -> None:
    """Have these programs here; with `nodes`, also what real nodes need of the system, if it can be had."""
    built = [program.name for program in obtain.lacking(names) if program.module]
    with ThreadPoolExecutor(1, "packages") as pool:
        installing = pool.submit(_install, progress, nodes)
        obtain.obtain(built, progress, download=download)
        installing.result()


class Background:
    """Programs that are being got while somebody does something else."""

    def __init__(self, future: Future[None], progress: Progress) -> None:
        self._future, self._progress = future, progress

    def wait(self) -> None:
        """Show how far it is from now on, until all is there."""
        self._progress.go_on()
        self._future.result()


@contextlib.contextmanager
def in_background(names: Iterable[str], progress: Progress, *, download: bool) -> Iterator[Background]:
    """Get these programs while the block does something else, quietly; cancelled if that fails."""
    progress.hold_back()
    with ThreadPoolExecutor(1, "programs") as pool:
        try:
            yield Background(pool.submit(obtain.obtain, names, progress, download=download), progress)
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
