"""Sees every version of every DNSRecord, in the order in which they came to be."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from windowbox.clients.kubernetes import kube
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS

logger = logging.getLogger(__name__)

Condition = Callable[[Object | None], bool]
"""About the object as it is now; None if it is gone."""

PATIENCE = 60.0


class Version(NamedTuple):
    event: str
    object: Object


class Witness:
    """What was seen, for those who wait in other threads."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._seen: dict[tuple[str, str], list[Version]] = {}

    def history(self, namespace: str, name: str) -> list[Version]:
        with self._news:
            return list(self._seen.get((namespace, name), ()))

    def until(self, namespace: str, name: str, condition: Condition, patience: float = PATIENCE) -> None:
        with self._news:
            if not self._news.wait_for(lambda: condition(self._now(namespace, name)), patience):
                found = self._now(namespace, name)
                raise AssertionError(f"{namespace}/{name} stays {found and dict(found.raw)}")

    def now(self, namespace: str, name: str) -> Object | None:
        with self._news:
            return self._now(namespace, name)

    def _now(self, namespace: str, name: str) -> Object | None:
        versions = self._seen.get((namespace, name))
        return None if not versions or versions[-1].event == "DELETED" else versions[-1].object

    async def watch(self, kubeconfig: Path) -> None:
        """Look on from the beginning, until cancelled."""
        seen = "0"
        async with kube.from_file(kubeconfig) as api:
            while True:
                try:
                    async for events in api.watch(DNSRECORDS, seen):
                        seen = str(events[-1].object["metadata"]["resourceVersion"])
                        self._see([Version(e.type, Object(e.object)) for e in events if e.type != "BOOKMARK"])
                except WindowboxError as error:
                    # A kind that was just defined is not served at once.
                    logger.info("the witness looks again: %s", error)
                    await asyncio.sleep(0.2)  # as any client does

    def _see(self, versions: list[Version]) -> None:
        with self._news:
            for version in versions:
                place = version.object.namespace, version.object.name
                self._seen.setdefault(place, []).append(version)
            self._news.notify_all()


@contextlib.contextmanager
def witnessing(kubeconfig: Path) -> Iterator[Witness]:
    """A witness at work, in a thread of its own."""
    witness = Witness()
    loop = asyncio.new_event_loop()
    watching = loop.create_task(witness.watch(kubeconfig))

    def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(watching)
        loop.close()

    thread = threading.Thread(target=work, name="witness", daemon=True)
    thread.start()
    try:
        yield witness
    finally:
        loop.call_soon_threadsafe(watching.cancel)
        thread.join(10)
