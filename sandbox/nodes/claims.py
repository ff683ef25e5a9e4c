"""Claims on sandbox numbers, from which names of links and namespaces and address ranges derive.

A claim is a locked file. The kernel releases the lock when its holder dies; so a claim file that another
process can lock is a leftover.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from windowbox.errors import Refused

_HOME = Path("/run/windowbox")
_LOCKS = Path("/proc/locks")
_MOST = 256


@dataclass(frozen=True)
class Claim:
    """A number that one sandbox of this machine holds."""

    number: int

    @property
    def name(self) -> str:
        """The name of its link on this host, and the prefix of its namespaces' names."""
        return f"wb{self.number}"

    @property
    def folder(self) -> Path:
        """For sockets, which need short paths, and for files that need not survive a restart."""
        return _HOME / self.name

    def namespace(self, name: str) -> str:
        return f"{self.name}-{name}"


@contextlib.contextmanager
def held(number: int) -> Iterator[Claim | None]:
    """The claim on `number` while the block runs; None if another sandbox holds it."""
    _HOME.mkdir(parents=True, exist_ok=True)
    with (_HOME / f"{number}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield Claim(number)


@contextlib.contextmanager
def highest() -> Iterator[Claim]:
    """The claim on the highest free number, for sandboxes without nodes."""
    for number in reversed(numbers()):
        with held(number) as claim:
            if claim:
                yield claim
                return
    raise Refused(f"{_MOST} sandboxes run on this machine: end one")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A machine-wide lock: no other sandbox searches for free numbers and ranges while the block runs."""
    with (_HOME / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def left() -> Iterator[list[Claim]]:
    """Claims of sandboxes that died, locked while the block runs."""
    # Only root can have claimed anything, and can clean it up.
    paths = _HOME.glob("wb*") if os.geteuid() == 0 else ()
    begun = sorted(int(path.name[2:]) for path in paths if is_name(path.name))
    with contextlib.ExitStack() as stack:
        yield [claim for number in begun if (claim := stack.enter_context(held(number)))]


def taken() -> set[int]:
    """The numbers that sandboxes hold, by the kernel's list of locks: nothing is locked to see it."""
    files = {path.stat().st_ino: int(path.stem) for path in _HOME.glob("*.lock") if path.stem.isdecimal()}
    # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131077 0 EOF
    locked = (line.split()[5] for line in _LOCKS.read_text().splitlines() if " FLOCK " in line)
    return {files[inode] for lock in locked if (inode := int(lock.rpartition(":")[2])) in files}


def numbers() -> range:
    return range(_MOST)


def is_name(link: str) -> bool:
    """Whether the link has the name of a sandbox's link."""
    return link[:2] == "wb" and link[2:].isdecimal()


def named(link: str) -> Claim:
    """The claim with this name of a link."""
    return Claim(int(link[2:]))


def begin(claim: Claim) -> None:
    """Record that there is something to clean up from now on."""
    claim.folder.mkdir(parents=True, exist_ok=True)


def done(claim: Claim) -> None:
    """Record that there is nothing left to clean up."""
    shutil.rmtree(claim.folder, ignore_errors=True)
    if claim.folder.exists():
        raise Refused(f"{claim.folder} cannot be removed")
