"""Sees every version of every DNSRecord, in the order in which they came to be."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS
from windowbox.sandbox.apiserver import ApiServer

logger = logging.getLogger(__name__)

Condition = Callable[[Object | None], bool]
"""About the object as it is now; None if it is gone."""

PATIENCE = 30.0


class Version(NamedTuple):
    event: str
    object: Object


class Witness:
    """Watches from its beginning on, in a thread that ends with the process."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._news = threading.Condition()
        self._seen: dict[tuple[str, str], list[Version]] = {}
        threading.Thread(target=self._watch, name="witness", daemon=True).start()

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

    def _watch(self) -> None:
        while True:
            try:
                for event in self._api.events(DNSRECORDS.path(), seconds=600):
                    self._see(Version(event["type"], Object(event["object"])))
            except (WindowboxError, OSError, ValueError) as error:
                # A kind that was just defined is not served at once; and at the end there is no server.
                logger.info("the witness looks again: %s", error)
                time.sleep(0.2)

    def _see(self, version: Version) -> None:
        object = version.object
        with self._news:
            seen = self._seen.setdefault((object.namespace, object.name), [])
            if not seen or seen[-1].object.resource_version != object.resource_version:
                seen.append(version)
            self._news.notify_all()
