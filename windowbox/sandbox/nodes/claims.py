"""Who has which number: names of links and namespaces, and the ranges of addresses, follow from it.

A claim is a locked file. The kernel opens the lock when its holder dies, however it dies; so a claim that
can be locked by somebody else was left behind.
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
_MOST = 256


@dataclass(frozen=True)
class Claim:
    """A number of this machine that one sandbox has."""

    number: int

    @property
    def name(self) -> str:
        """The name of its link on this host, and the beginning of all its namespaces' names."""
        return f"wb{self.number}"

    @property
    def folder(self) -> Path:
        """For sockets, whose paths must be short, and for what need not survive a restart."""
        return _HOME / self.name

    def namespace(self, name: str) -> str:
        return f"{self.name}-{name}"


@contextlib.contextmanager
def held(number: int) -> Iterator[Claim | None]:
    """The claim on `number` while the block lasts; None if somebody else has it."""
    _HOME.mkdir(parents=True, exist_ok=True)
    with _lock(number).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield Claim(number)


@contextlib.contextmanager
def highest() -> Iterator[Claim]:
    """The claim on the highest number that is free, for whoever needs none of the addresses of nodes."""
    for number in reversed(numbers()):
        with held(number) as claim:
            if claim:
                yield claim
                return
    raise Refused(f"{_MOST} sandboxes run on this machine: end one")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """No other sandbox looks for what is free while the block lasts."""
    with (_HOME / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def left() -> Iterator[list[Claim]]:
    """Claims of sandboxes that died; nobody else can have them while the block lasts."""
    begun = _begun() if os.geteuid() == 0 else []
    with contextlib.ExitStack() as stack:
        yield [claim for number in begun if (claim := stack.enter_context(held(number)))]


def numbers() -> range:
    return range(_MOST)


def is_name(link: str) -> bool:
    """Is the link, by its name, one to the nodes of a sandbox?"""
    return link[:2] == "wb" and link[2:].isdecimal()


def begin(claim: Claim) -> None:
    """Note that there will be something to clear."""
    claim.folder.mkdir(parents=True, exist_ok=True)


def done(claim: Claim) -> None:
    """Note that there is nothing left to clear."""
    shutil.rmtree(claim.folder, ignore_errors=True)
    if claim.folder.exists():
        raise Refused(f"{claim.folder} cannot be removed")


def _begun() -> list[int]:
    return sorted(int(path.name[2:]) for path in _HOME.glob("wb*") if is_name(path.name))


def _lock(number: int) -> Path:
    return _HOME / f"{number}.lock"
