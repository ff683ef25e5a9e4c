"""Faults that people set for accounts of clouds: calls of runs fail as the cloud would let them fail."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from datetime import UTC, datetime

from bus import streams
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus, WrongSequence
from clouds import table
from clouds.frame import inventory
from clouds.frame.operator import faults
from windowbox.errors import Unreachable
from workers.core.recorder import Calls

_ATTEMPTS = 100


class CloudFaults:
    """The faults in the bucket `clouds`. Each call that meets one is counted, by compare-and-set."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, streams.CLOUDS)
        self._counting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Runs of this process count one after another; those of others meet at the sequence."""

    async def check(self, calls: Calls, account: str, part: str, owner: str) -> None:
        """Make a call to the cloud: an error of the cloud if a fault is set for it.

        `part` is one of `faults.PARTS`, and `owner` the technical id of the Shoot for which the call is made.
        """
        request = {"account": account, "call": part, "shoot": owner}
        await calls.call("cloud", request, self._play, account, part, owner, effect=True)

    async def check_for(self, calls: Calls, cloud: str, part: str, owner: str) -> None:
        """The same, for callers that know the Shoot and its cloud only. Without an account nothing fails."""
        account = await calls.call("inventory", {"account of": owner}, self._account, cloud, owner)
        if account:
            await self.check(calls, account, part, owner)

    async def _account(self, cloud: str, owner: str) -> str:
        value = (await self._bucket.get(inventory.key("shoots", owner))).value
        account = str(json.loads(value).get("account")) if value else ""
        return account if inventory.cloud_of(account) == cloud else ""

    async def _play(self, account: str, part: str, owner: str) -> bool:
        key = inventory.key("faults", account)
        if (await self._bucket.get(key)).value is None:
            return False
        async with self._counting[account]:
            for _ in range(_ATTEMPTS):
                entry = await self._bucket.get(key)
                left = faults.active(faults.decoded(entry.value), datetime.now(UTC))
                name, left = faults.called(left, part, owner)
                value = faults.encoded(left)
                try:
                    if value is None and entry.value is not None:
                        await self._bucket.delete(key, entry.sequence)
                    elif value is not None and value != entry.value:
                        await self._bucket.put(key, value, entry.sequence)
                except WrongSequence:
                    continue  # another worker has counted a call, or somebody has changed the faults
                if found := table.cloud(inventory.cloud_of(account)).faults.get(name):
                    raise found.error()
                return False
        raise Unreachable(f"the faults of {account} change all the time")
