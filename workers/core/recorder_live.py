"""The recorder of live runs: makes the calls and records them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from bus import streams, subjects
from bus.clusters.clusters import Clusters
from bus.messages import Announcement, Call, Read
from bus.transport.connection import Bus
from bus.workqueue.pool import Item
from windowbox.errors import Malformed, Missing
from windowbox.kinds import RESOURCES
from windowbox.models.objects import Object
from windowbox.models.refs import SECRETS, ObjectRef
from workers.core.recorder import BLOCK, error_record

T = TypeVar("T")


class LiveRecorder:
    """Makes the outside calls of a run, and records them with the item."""

    def __init__(self, bus: Bus, clusters: Clusters, item: Item) -> None:
        self._bus = bus
        self._clusters = clusters
        self._item = item
        self._blocks = {0: 0}
        """Numbers of the concurrent blocks of this run, the same in each run; 0 outside of any."""

    async def read(self, ref: ObjectRef) -> Object | None:
        subject = subjects.seen(ref)
        stored = await self._bus.last(streams.OBJECTS, subject)
        sequence = stored.sequence if stored else 0
        self._item.reads.append(Read(stream=streams.OBJECTS, subject=subject, sequence=sequence))
        if stored is None:
            return None
        seen = Announcement(stored)
        if seen.gone:
            return None
        if not seen.omitted:
            return seen.object()
        kube = await self._clusters.get(ref.cluster)  # it is too large for the bus
        return await kube.find(RESOURCES[ref.kind], ref.namespace, ref.name)

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        if effect:
            self._item.check()
        answer = failed = None
        try:
            answer = await act(*args)
        except BaseException as error:
            # Also cancellations and bugs: a replay has to end in the same way.
            failed = error_record(error)
            raise
        finally:
            at_once = self._blocks.setdefault(BLOCK.get(), len(self._blocks))
            self._item.calls.append(
                Call(door=door, request=request, answer=answer, error=failed, effect=effect, at_once=at_once)
            )
        return answer

    def wrote(self, ref: ObjectRef, version: str) -> None:
        self._item.writes.add((ref, version))

    async def time(self) -> datetime:
        return await self._clusters.runtime.now()

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        what, parsed = f"Secret {ref.namespace}/{ref.name}", list[T]()

        async def read_secret() -> str:
            kube = await self._clusters.get(ref.cluster)
            try:
                found = await kube.get(SECRETS, ref.namespace, ref.name)
            except Missing as error:
                raise Malformed(
                    f"{what} does not exist: create it, or correct the reference to it"
                ) from error
            data = found.raw.get("data") or {}
            try:
                plain = {key: base64.b64decode(value, validate=True) for key, value in data.items()}
            except (TypeError, binascii.Error) as error:
                raise Malformed(f"{what} holds data that is not base64") from error
            parsed.append(parse(plain))
            return f"«secret {ref.namespace}/{ref.name}»"

        await self.call("secret", {"namespace": ref.namespace, "name": ref.name}, read_secret)
        return parsed[0]
