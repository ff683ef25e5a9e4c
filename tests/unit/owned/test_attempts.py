"""When orphans are removed: no cluster delays others, and no object delays those after it."""

from __future__ import annotations

import asyncio

import pytest

from windowbox.models.refs import INFRASTRUCTURES, NAMESPACES, RUNTIME, ObjectRef, SecretKey
from workers.core.owned.marks import Mark
from workers.core.owned.ownedorphans import Attempts, Orphan, Owned

_OWNER = ObjectRef(RUNTIME, INFRASTRUCTURES.id, "shoot--a", "local")
_MARK = Mark("installation", "home", _OWNER, "uid", SecretKey(namespace="shoot--a", name="cloudprovider"))


def orphan(cluster: str, name: str) -> Orphan:
    return ObjectRef(cluster, NAMESPACES.id, "", name), Owned(name, _MARK)


async def tried(attempts: Attempts, orphans: list[Orphan], checks: int, hanging: str = "") -> list[Orphan]:
    """The orphans in the order in which these checks try to remove them; one of a hanging cluster hangs."""
    found: list[Orphan] = []

    async def remove(one: Orphan) -> None:
        found.append(one)
        if one[0].cluster == hanging:
            await asyncio.Event().wait()

    async with asyncio.timeout(30):
        for _ in range(checks):
            await attempts.make(orphans, remove)
    return found


async def test_a_hanging_cluster_delays_no_other() -> None:
    orphans = [orphan(cluster, name) for cluster in ("hanging", "fine") for name in "abc"]
    attempts = Attempts(grace=0, backoff=3600, patience=0.05)
    # Each check gives up one object of the hanging cluster; the next check tries the next one.
    assert sorted(await tried(attempts, orphans, 3, "hanging")) == sorted(orphans)


async def test_orphans_that_cannot_be_removed_make_room_for_others() -> None:
    orphans = [orphan("one", f"{number:03}") for number in range(250)]
    assert await tried(Attempts(grace=0, backoff=3600), orphans, 4) == orphans


@pytest.mark.parametrize(
    ("grace", "attempts"),
    [(0, 2), (3600, 0)],
    ids=["after-the-backoff", "not-in-its-grace"],
)
async def test_an_orphan_is_tried_when_due(grace: float, attempts: int) -> None:
    assert len(await tried(Attempts(grace=grace, backoff=0), [orphan("one", "a")], 2)) == attempts


async def test_a_bug_that_one_orphan_triggers_delays_no_other() -> None:
    orphans, found = [orphan("one", name) for name in "abc"], list[Orphan]()

    async def remove(one: Orphan) -> None:
        found.append(one)
        raise KeyError("a bug")

    await Attempts(grace=0, backoff=3600).make(orphans, remove)
    assert found == orphans
