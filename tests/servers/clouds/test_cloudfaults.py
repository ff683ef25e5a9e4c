"""Faults of clouds are counted exactly, by any number of workers."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from bus import streams
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus, connected
from clouds.frame import inventory
from clouds.frame.operator import faults
from clouds.frame.operator.faults import SetFault
from windowbox.errors import TransientError
from windowbox.settings.bussettings import Access
from workers.core.cloudfaults import CloudFaults
from workers.core.recorder import Unrecorded

ACCOUNT = "aws-012345678901"


async def set_(bus: Bus, *some: SetFault) -> None:
    await streams.ensure(bus)
    value = faults.encoded(list(some))
    assert value
    await Bucket(bus, streams.CLOUDS).put(inventory.key("faults", ACCOUNT), value, None)


async def test_as_many_calls_fail_as_asked_whichever_workers_make_them(bus: Bus, nats_url: str) -> None:
    await set_(bus, SetFault("quota", times=30), SetFault("invalid", on="dns", times=5))
    async with connected(Access(nats_url, name="another")) as other:
        workers = [CloudFaults(one) for one in (bus, other) for _ in range(3)]
        parts = itertools.cycle(("machines", "dns", "infrastructure"))
        calls = [worker.check(Unrecorded(), ACCOUNT, next(parts), "shoot--a") for worker in workers * 20]
        met = await asyncio.gather(*calls, return_exceptions=True)
    texts = [str(one).partition(":")[0] for one in met if one is not None]
    assert sorted(texts) == ["InvalidParameterValue"] * 5 + ["VpcLimitExceeded"] * 30
    assert (await Bucket(bus, streams.CLOUDS).get(inventory.key("faults", ACCOUNT))).value is None


async def test_calls_without_a_fault_write_nothing(bus: Bus) -> None:
    await set_(bus, SetFault("quota", on="dns"))
    key = inventory.key("faults", ACCOUNT)
    before = await Bucket(bus, streams.CLOUDS).get(key)
    await CloudFaults(bus).check(Unrecorded(), ACCOUNT, "machines", "shoot--a")
    with pytest.raises(TransientError):
        await CloudFaults(bus).check(Unrecorded(), ACCOUNT, "dns", "shoot--a")
    assert await Bucket(bus, streams.CLOUDS).get(key) == before


async def test_a_fault_that_has_ended_is_removed_when_it_is_seen(bus: Bus) -> None:
    await set_(bus, SetFault("quota", until="2026-01-01T00:00:00Z"))
    await CloudFaults(bus).check(Unrecorded(), ACCOUNT, "dns", "shoot--a")
    assert (await Bucket(bus, streams.CLOUDS).get(inventory.key("faults", ACCOUNT))).value is None
