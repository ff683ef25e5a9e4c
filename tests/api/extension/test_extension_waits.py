"""What an Extension says when a resource manager does not come to an end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from bus import streams, subjects
from bus.transport import consumers
from bus.transport.connection import connected
from tests.support.cases import cases, long
from tests.support.kindworld import Client, KindWorld
from tests.support.resourcemanager import ResourceManager
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.kinds import Served
from windowbox.models.extensions import OPERATION, TIMESTAMP, spelled
from windowbox.models.objects import Object
from windowbox.models.refs import EXTENSIONS, RUNTIME, ObjectRef
from windowbox.settings.bussettings import Access
from workers.core.lifecycle import lifecycle
from workers.core.serving import Common, Serving
from workers.kinds.extension import extensionpool

SEED = "local-ext-seed"

pytestmark = [pytest.mark.serves(SEED), pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module", autouse=True)
def hasty() -> Iterator[None]:
    """In this world nobody is patient."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycle, "_REQUEUE_AFTER", 0.2)
        patch.setattr(extensionpool, "serving", partial(_hasty, extensionpool.serving))
        yield


def _hasty(serving: Callable[[Common, Served], Serving], common: Common, row: Served) -> Serving:
    made = serving(common, row)
    # Runs must end within the deadline also on a busy machine: one that does not reports that instead.
    return dataclasses.replace(made, kind=dataclasses.replace(made.kind, deadline=4.0))


async def two_more_runs(world: KindWorld, namespace: str) -> None:
    """Wait until the Extension has been reconciled twice more."""
    subject = subjects.run(SEED, subjects.key(ObjectRef(RUNTIME, EXTENSIONS.id, namespace, SEED)))
    async with connected(Access(world.nats.url, name="test")) as bus:

        async def runs() -> int:
            return len(
                [one async for one in consumers.snapshot(bus, streams.JOURNAL, [subject], history=True)]
            )

        before = await runs()

        async def happened() -> bool:
            return await runs() >= before + 2

        await eventually(happened)


async def extended(shoot: Client) -> None:
    await shoot.create(EXTENSIONS, SEED, {"type": SEED})


INVALID = "Error during apply of object v1/ServiceAccount/x is invalid: metadata.labels: too long"


@pytest.mark.long  # the next test shows the reason, unit/extension its codes
@cases(
    "words codes",
    ("E-2-invalid-object", INVALID, ["ERR_CONFIGURATION_PROBLEM"]),
    long("E-2-other-reason", "a finalizer of somebody is left", None),
)
async def test_a_blocked_deletion_reports_the_reason(
    world: KindWorld, words: str, codes: list[str] | None
) -> None:
    shoot = await world.shoot()
    async with ResourceManager(shoot).at_work() as manager:
        await extended(shoot)
        await shoot.until_ready(EXTENSIONS, SEED)
        await manager.behave(failure=words)
        await shoot.delete(EXTENSIONS, SEED)
        stuck = await shoot.until_failed(EXTENSIONS, SEED)
        said = stuck.status["lastError"]["description"]
        waiting = f"waiting for ManagedResource {shoot.namespace}/{SEED} to be gone: "
        assert said.startswith(f"Error deleting the Extension: {waiting}Could not clean all old resources")
        assert said.endswith(f"{words}, for more than 4 s")
        assert stuck.status["lastError"].get("codes") == codes
        await manager.behave()
        await shoot.until_gone(EXTENSIONS, SEED)


@rule("B.21", "B.24")
async def test_an_error_stays_until_all_is_well(world: KindWorld) -> None:
    shoot = await world.shoot()
    async with ResourceManager(shoot).at_work() as manager:
        await manager.behave(failure="no such kind")
        await extended(shoot)

        def reported(found: Object | None) -> bool:
            said = str(found and (found.status.get("lastError") or {}).get("description"))
            return "ResourcesApplied is False" in said and "no such kind" in said

        failed = await shoot.until(EXTENSIONS, SEED, reported)
        assert failed
        await two_more_runs(world, shoot.namespace)
        still = await shoot.get(EXTENSIONS, SEED)
        assert still
        assert still.status == failed.status
        await manager.behave()
        done = await shoot.until_ready(EXTENSIONS, SEED)
        assert done.last_operation["type"] == "Create"


@rule("B.21")
async def test_a_repeated_request_reports_the_wait(world: KindWorld) -> None:
    shoot = await world.shoot()
    await extended(shoot)
    await shoot.until_failed(EXTENSIONS, SEED)
    # Within one second nobody could tell which was first.
    later = spelled(datetime.now(UTC) + timedelta(seconds=2))
    await shoot.merge(
        EXTENSIONS, SEED, {"metadata": {"annotations": {OPERATION: "reconcile", TIMESTAMP: later}}}
    )

    def reported(found: Object | None) -> bool:
        return found is not None and found.last_operation.get("state") == "Processing"

    waiting = await shoot.until(EXTENSIONS, SEED, reported)
    assert waiting
    assert "lastError" not in waiting.status
