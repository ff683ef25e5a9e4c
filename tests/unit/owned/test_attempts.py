"""When orphans are removed: no cluster holds up others, and no object those behind it."""

from __future__ import annotations

import asyncio

from windowbox.errors import Refused
from windowbox.models.refs import INFRASTRUCTURES, NAMESPACES, RUNTIME, ObjectRef, SecretKey
from workers.core.owned.marks import Mark
from workers.core.owned.ownedorphans import Attempts, Orphan, Owned

_OWNER = ObjectRef(RUNTIME, INFRASTRUCTURES.id, "shoot--a", "local")
_MARK = Mark("installation", "home", _OWNER, "uid", SecretKey(namespace="shoot--a", name="cloudprovider"))


def orphan(cluster: str, name: str) -> Orphan:
    return ObjectRef(cluster, NAMESPACES.id, "", name), Owned(name, _MARK)


async def test_a_cluster_that_hangs_holds_up_no_other() -> None:
    orphans = [orphan(cluster, name) for cluster in ("hanging", "fine") for name in "abc"]
    attempts = Attempts(grace=0, backoff=3600, patience=0.05)
    tried: list[Orphan] = []

    async def remove(one: Orphan) -> None:
        tried.append(one)
        if one[0].cluster == "hanging":
            await asyncio.Event().wait()

    async with asyncio.timeout(30):
        for _ in range(3):  # each check gives up one of those that hang, and goes on with the next
            await attempts.make(orphans, remove)
    assert sorted(tried) == sorted(orphans)


async def test_those_that_cannot_be_removed_make_room_for_others() -> None:
    orphans = [orphan("one", f"{number:03}") for number in range(250)]
    attempts = Attempts(grace=0, backoff=3600)
    tried: list[Orphan] = []

    async def keep(one: Orphan) -> None:
        tried.append(one)

    for _ in range(4):
        await attempts.make(orphans, keep)
    assert tried == orphans


async def test_a_failed_attempt_is_repeated_after_the_backoff() -> None:
    attempts, tried = Attempts(grace=0, backoff=0), []

    async def remove(one: Orphan) -> None:
        tried.append(one)

    for _ in range(2):
        await attempts.make([orphan("one", "a")], remove)
    assert len(tried) == 2


async def test_an_orphan_is_left_alone_during_its_grace() -> None:
    attempts = Attempts(grace=3600, backoff=0)

    async def remove(one: Orphan) -> None:
        raise Refused(f"{one} may still be removed by a run")

    await attempts.make([orphan("one", "a")], remove)
