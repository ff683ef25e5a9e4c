"""Leader election by a Lease of the API, as Kubernetes' controllers do it: for what runs without a bus."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, TransientError, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import LEASES

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Times:
    """In seconds, as controllers have them by default."""

    lease: int = 15
    """Other candidates wait so long after the last renewal."""
    renewal: float = 10.0
    """The leader continues so long without a renewal: less than others wait."""
    retry: float = 2.0


class LeaderElection:
    """One candidate for a Lease."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, identity: str, times: Times | None = None
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times or Times()
        self._seen: tuple[Any, float] = (None, 0.0)
        """The last renewal of another candidate, and when we first saw it: its clock is not trusted."""

    async def while_leading(self, act: Callable[[], Awaitable[None]]) -> None:
        """Run `act` while we lead, for ever; cancel it when the Lease is lost."""
        try:
            while True:
                before = time.monotonic()
                if await self._renewed():
                    await self._lead(act, before)
                await asyncio.sleep(self._times.retry)
        finally:
            # Release the Lease, so that another candidate leads at once.
            with contextlib.suppress(WindowboxError, TimeoutError):
                async with asyncio.timeout(self._times.retry):
                    found = await self._kube.find(LEASES, self._namespace, self._name)
                    if found and found.spec.get("holderIdentity") == self._identity:
                        version = {"resourceVersion": found.resource_version}
                        patch = {"metadata": version, "spec": {"holderIdentity": ""}}
                        await self._kube.merge(LEASES, self._namespace, self._name, patch)

    async def _lead(self, act: Callable[[], Awaitable[None]], last: float) -> None:
        """Do `act` until the Lease is lost. `last`: when the request began by which it became ours.

        Others may count from any moment since.
        """
        if time.monotonic() - last >= self._times.renewal:
            return
        logger.info("leader by the Lease %s/%s", self._namespace, self._name)
        acting = asyncio.ensure_future(act())
        try:
            while not acting.done():
                await asyncio.wait([acting], timeout=self._times.retry)
                before = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(last + self._times.renewal - before, 0)):
                        if await self._renewed():
                            last = before
                if time.monotonic() - last >= self._times.renewal or self._seen[0] is not None:
                    logger.warning("the Lease %s/%s was lost", self._namespace, self._name)
                    return
            await acting
        finally:
            acting.cancel()
            await asyncio.wait([acting])

    async def _renewed(self) -> bool:
        """Take or renew the Lease. False if another candidate has it, or if it cannot be written now."""
        try:
            found = await self._kube.find(LEASES, self._namespace, self._name)
            if found is None:
                kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
                lease = {**kind, "metadata": {"name": self._name}, "spec": self._spec()}
                await self._kube.create(LEASES, self._namespace, lease)
            elif self._is_free(found):
                # Of two candidates that patch this version, the second gets a Conflict.
                version = {"resourceVersion": found.resource_version}
                patch = {"metadata": version, "spec": self._spec(found)}
                await self._kube.merge(LEASES, self._namespace, self._name, patch)
            else:
                return False
        except (Conflict, TransientError) as error:
            logger.debug("lease %s: %s", self._name, error)
            return False
        except WindowboxError as error:
            logger.warning("the Lease %s/%s: %s", self._namespace, self._name, error)
            return False
        return True

    def _is_free(self, found: Object) -> bool:
        holder = found.spec.get("holderIdentity") or ""
        if holder in ("", self._identity):
            self._seen = (None, 0.0)
            return True
        renewal, now = (holder, found.spec.get("renewTime")), time.monotonic()
        if renewal != self._seen[0]:
            self._seen = (renewal, now)
        expired = now - self._seen[1] >= (found.spec.get("leaseDurationSeconds") or self._times.lease)
        if expired:
            self._seen = (None, 0.0)
        return bool(expired)

    def _spec(self, found: Object | None = None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"leaseDurationSeconds": self._times.lease, "renewTime": now}
        if found is None or found.spec.get("holderIdentity") != self._identity:
            transitions = int(found.spec.get("leaseTransitions") or 0) + 1 if found else 0
            spec |= {"holderIdentity": self._identity, "acquireTime": now, "leaseTransitions": transitions}
        return spec
