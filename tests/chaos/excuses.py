"""Which failures of connections may be: all others are faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.chaos.callers import Callers, Failure
from tests.chaos.envoys import Envoys
from tests.chaos.nodes import Nodes

_SHORTLY = 1.0
"""Seconds. What happens so shortly after something was away may still be because of it."""
_CHECKS_PER_SECOND = 50
"""Envoy makes no more than a few at once, so the more endpoints, the later it finds out that one is back."""
_HEARD = 5.0
"""Seconds from the promise of a port until nodes have heard of it, too."""
_LOST = 2
"""So many connections may be lost with a node: those that it had taken, but not yet looked at."""


@dataclass
class Excuses:
    callers: Callers
    envoys: Envoys
    nodes: Nodes

    def faults(self) -> list[str]:
        """In words, all failures without an excuse."""
        told = {failure: self._excuse(failure) for failure in self.callers.failures}
        known = self.callers.services.by_uid
        faults = [f"{known[one.uid].name} {one}" for one, excuse in told.items() if not excuse]
        lost = Counter(told.values())["the node broke"]
        most = _LOST * len(self.nodes.broken.spans)
        return faults + (
            [f"{lost} connections were lost with nodes, not at most {most}"] if lost > most else []
        )

    def counted(self) -> dict[str, int]:
        """How many connections were served, and failed for which reason."""
        told = Counter(self._excuse(failure) or "no excuse" for failure in self.callers.failures)
        return {"served": self.callers.served.total(), **told}

    def _excuse(self, failure: Failure) -> str:
        return next(self._excuses(failure), "")

    def _excuses(self, failure: Failure) -> Iterator[str]:
        began, ended = failure.began, failure.ended
        if failure.what == "lasting":
            began = ended  # it failed in the end, whenever it was made
        wanted = self.callers.services.by_uid[failure.uid]
        if wanted.given_up.get(failure.place, ended + 1) <= ended:
            yield "no longer wanted"
        if self.envoys.down.touch(began, ended, _SHORTLY):
            yield "Envoy was down"
        if failure.what == "lasting":
            return
        promised = self.callers.witness.since[failure.uid, failure.place]
        if not self.callers.served_before(failure) and began < promised + _HEARD:
            yield "the nodes have not heard yet"
        if self.callers.silent.touch(began, ended, self._checked()):
            yield "no node answered"
        if failure.what == "greeting" and self.nodes.broken.touch(began, ended, _SHORTLY):
            yield "the node broke"

    def _checked(self) -> float:
        """Seconds until Envoy has found out that a node answers health checks again."""
        ports = sum(len(wanted.ports) for wanted in self.callers.services.living.values())
        return 3.0 + ports * self.nodes.count / _CHECKS_PER_SECOND
