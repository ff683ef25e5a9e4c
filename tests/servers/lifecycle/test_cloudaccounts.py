"""The inventory of an account, written by several runs at once."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from bus import streams
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus
from clouds.frame import inventory
from clouds.frame.inventory import CloudObject, Reference
from windowbox.errors import Conflict, Malformed, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, RUNTIME, ObjectRef
from workers.core.cloudaccounts import CloudAccounts
from workers.core.lifecycle.actuators import Run

IP = Reference("elastic-ip", "eipalloc-1", "networks.zones[0].elasticIPAllocationID", exclusive=True)


class Recorder:
    """Does what it is asked to; before an effect on an existing object, something else happens first."""

    def __init__(self, first: Callable[[], Awaitable[None]] | None = None) -> None:
        self._first = first

    async def read(self, ref: ObjectRef) -> Object | None:
        return None

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        if effect and "existing" in str(request) and (first := self._first):
            self._first = None
            await first()
        return await act(*args)

    def wrote(self, ref: ObjectRef, version: str) -> None: ...

    async def time(self) -> datetime:
        return datetime.now(UTC)

    async def secret(self, ref: ObjectRef, parse: Callable[[Any], Any]) -> Any:
        return None


class Inventory:
    """The inventory behind the runs of two Shoots."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, streams.CLOUDS)
        self._accounts = CloudAccounts(bus, cast(Any, None))

    async def add(self, account: str) -> None:
        content = inventory.encoded([CloudObject(IP.kind, IP.id)])[0]
        await self._bucket.put(self._key(account), json.dumps(content).encode(), None)

    async def user(self, account: str) -> str:
        value = (await self._bucket.get(self._key(account))).value
        return inventory.decoded([json.loads(value or b"{}")])[0].used_by

    async def keep(
        self, owner: str, account: str = "one", *, first: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        ref = ObjectRef(RUNTIME, INFRASTRUCTURES.id, owner, "cloud")
        await self._accounts.keep(Run(ref, Object({}), None, Recorder(first)), account, owner, [], [IP])

    async def drop(self, owner: str) -> None:
        ref = ObjectRef(RUNTIME, INFRASTRUCTURES.id, owner, "cloud")
        await self._accounts.drop(Run(ref, Object({}), None, Recorder()), owner)

    def _key(self, account: str) -> str:
        return inventory.key("existing", account, IP.kind, IP.id)


async def test_one_of_two_shoots_gets_an_address_that_both_claim_at_once(bus: Bus) -> None:
    found = Inventory(bus)
    await found.add("one")

    with pytest.raises(Conflict):
        await found.keep("shoot--a", first=lambda: found.keep("shoot--b"))

    assert await found.user("one") == "shoot--b"


async def test_a_shoot_with_credentials_of_another_account_leaves_nothing_claimed(bus: Bus) -> None:
    found = Inventory(bus)
    await found.add("one")
    await found.add("other")
    await found.keep("shoot--a")

    await found.keep("shoot--a", "other")

    assert (await found.user("one"), await found.user("other")) == ("", "shoot--a")


async def test_a_full_inventory_is_an_error_with_a_remedy_and_still_releases(bus: Bus) -> None:
    found = Inventory(bus)
    await found.add("one")
    await found.keep("shoot--a")
    config = (await bus.api(f"STREAM.INFO.KV_{streams.CLOUDS}"))["config"]
    await bus.api(f"STREAM.UPDATE.KV_{streams.CLOUDS}", {**config, "max_bytes": 600})

    with pytest.raises(TransientError, match="full: an operator has to remove objects") as raised:
        await found.keep("shoot--b", "other")
    assert raised.value.codes == ("ERR_INFRA_QUOTA_EXCEEDED",)

    await found.drop("shoot--a")
    assert await found.user("one") == ""


@pytest.mark.parametrize(
    ("objects", "error"),
    [
        ([CloudObject("vpc", str(i)) for i in range(1_001)], "1001 objects, more than 1000"),
        ([CloudObject("vpc", "x" * 9_000)], "has more than 8192 bytes"),
        ([CloudObject("vpc", "x" * 8_000) for _ in range(70)], "bytes together, more than 524288"),
    ],
    ids=["number", "one", "together"],
)
def test_what_a_shoot_has_is_bounded(objects: list[CloudObject], error: str) -> None:
    with pytest.raises(Malformed, match=error) as raised:
        inventory.encoded(objects)
    assert len(str(raised.value)) < 300
