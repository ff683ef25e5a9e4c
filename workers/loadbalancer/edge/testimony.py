"""Recovery of allocations: the edge publishes again which addresses it serves, after a loss of the bus."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from datetime import UTC, datetime

from windowbox.errors import WindowboxError
from windowbox.models.refs import SERVICES, ObjectRef
from workers.loadbalancer.edge.reporter import StateReporter
from workers.loadbalancer.edgestate import EdgeState, States
from workers.loadbalancer.envoy.resources import Owner

logger = logging.getLogger(__name__)

_RETRY = 1.0


class Testimony:
    """Sees that the bucket `edges` names the addresses of each load balancer that is served.

    Allocations are restored from it: whoever owns a Service may write any address into its status.
    """

    def __init__(self, states: States, reporter: StateReporter, kept: Collection[Owner]) -> None:
        self._states = states
        self._reporter = reporter
        self._kept = kept
        """By Envoy's files, when this term began."""

    async def run(self) -> None:
        """Do it until cancelled, whenever the bus has forgotten it."""
        missing = asyncio.Event()
        missing.set()
        with contextlib.ExitStack() as stack:
            stack.callback(self._states.bucket.on_regress(missing.set))
            while True:
                await missing.wait()
                missing.clear()
                try:
                    await self._states.bucket.complete.wait()
                    await self._tell()
                except WindowboxError as error:
                    logger.info("edge: addresses in use cannot be published: %s", error)
                    await asyncio.sleep(_RETRY)
                    missing.set()

    async def _tell(self) -> None:
        for ref, state in self._known().items():
            if self._states.of(ref) is None:
                await self._states.put(ref, state)
        await self._states.testify()

    def _known(self) -> dict[ObjectRef, EdgeState]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if served := self._reporter.served:
            found = [(ref, one.uid, one.addresses) for ref, one in served.items()]
        else:
            refs = (ObjectRef(one.cluster, SERVICES.id, one.namespace, one.name) for one in self._kept)
            found = [(ref, one.uid, one.addresses) for ref, one in zip(refs, self._kept, strict=True)]
        # Without a digest it counts for nothing else: a Service whose state this is waits for another.
        return {
            ref: EdgeState(uid=uid, digest="", since=now, addresses=addresses)
            for ref, uid, addresses in found
        }
