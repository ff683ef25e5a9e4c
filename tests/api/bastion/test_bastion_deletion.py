"""How Bastions go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.bastion import bastions
from tests.api.bastion.bastions import Yard, yard
from tests.api.infrastructure.infrastructures import says
from tests.support.kindworld import CLOUDPROVIDER, KindWorld
from tests.support.rules import rule
from windowbox.models.extensions import FORCE_DELETION
from windowbox.models.objects import Object
from windowbox.models.refs import BASTIONS, NETWORK_POLICIES, PODS, SECRETS, SERVICES

pytestmark = pytest.mark.serves("bastion")

NAME = "bastion-cli"
HELD = {"metadata": {"finalizers": ["example.com/held"]}}
FREE = {"metadata": {"finalizers": None}}


async def standing(world: KindWorld, **metadata: Any) -> Yard:
    made = await yard(world)
    await made.create(**metadata)
    await made.ready()
    await world.quiet()
    return made


@rule("BA-4")
async def test_a_deletion_waits_for_pod_and_service(world: KindWorld) -> None:
    made = await standing(world)
    for resource in (PODS, SERVICES):
        await made.there.merge(resource, NAME, HELD)
    await made.shoot.delete(BASTIONS, "cli")
    both = "Deleting the Bastion: waiting for Pod and Service bastion-cli to be gone"
    found = await made.shoot.until(BASTIONS, "cli", says("Processing", both))
    assert found
    assert "lastError" not in found.status
    for resource in (SECRETS, NETWORK_POLICIES):
        await made.there.until_gone(resource, NAME)
    await made.there.merge(SERVICES, NAME, FREE)
    await made.shoot.until(BASTIONS, "cli", says("Processing", "waiting for Pod bastion-cli to be gone"))
    await made.there.merge(PODS, NAME, FREE)
    await made.shoot.until_gone(BASTIONS, "cli")


@rule("BA-4", "U-1")
async def test_after_its_deletion_a_bastion_says_that_it_was_reconciled(world: KindWorld) -> None:
    made = await standing(world, finalizers=["example.com/other"])
    await made.shoot.delete(BASTIONS, "cli")

    def let_go(found: Object | None) -> bool:  # the finalizer and the status are written by two processes
        last = found.last_operation if found else {}
        return (last.get("type"), last.get("state")) == ("Delete", "Succeeded")

    found = await made.shoot.until(BASTIONS, "cli", let_go)
    assert found
    assert found.last_operation["description"] == "Successfully reconciled Bastion"
    await made.shoot.merge(BASTIONS, "cli", FREE)


@rule("BA-4")
async def test_what_is_gone_already_is_not_missed(world: KindWorld) -> None:
    made = await yard(world, home=False)
    await made.create()
    await made.shoot.until(BASTIONS, "cli", says("Processing", "waiting for namespace"))
    await made.gone()


@rule("D-2", "BA-4", "B.6")
async def test_a_forced_deletion_waits_for_nobody(world: KindWorld) -> None:
    made = await standing(world)
    await made.there.merge(PODS, NAME, HELD)
    await made.shoot.merge(BASTIONS, "cli", {"metadata": {"annotations": {FORCE_DELETION: "true"}}})
    await made.gone()
    pod = await made.there.get(PODS, NAME)
    assert pod
    assert pod.deleting
    assert [await made.there.get(one, NAME) for one in bastions.PARTS if one != PODS] == [None] * 3
    await made.there.merge(PODS, NAME, FREE)


@rule("D-2", "B.6")
async def test_a_forced_deletion_does_without_credentials(world: KindWorld) -> None:
    made = await standing(world)
    await made.shoot.delete(SECRETS, CLOUDPROVIDER)
    await made.shoot.merge(BASTIONS, "cli", {"metadata": {"annotations": {FORCE_DELETION: "true"}}})
    await made.gone()


@pytest.mark.parametrize(
    "confirmed",
    [
        pytest.param("bastion", id="D-2-not-exactly-true"),
        pytest.param("shoot", id="D-2-the-annotation-of-the-shoot"),
    ],
)
async def test_other_confirmations_do_not_count(world: KindWorld, confirmed: str) -> None:
    made = await standing(world)
    annotations = {FORCE_DELETION: "True"}
    if confirmed == "bastion":
        await made.shoot.merge(BASTIONS, "cli", {"metadata": {"annotations": annotations}})
    else:
        profile = bastions.cloud_profile()
        await made.shoot.cluster(cloudProfile=profile, metadata={"annotations": annotations})
    await made.there.merge(PODS, NAME, HELD)
    await world.quiet()
    await made.shoot.delete(BASTIONS, "cli")
    await made.shoot.until(BASTIONS, "cli", says("Processing", "waiting for Pod"))
    await made.there.merge(PODS, NAME, FREE)
    await made.shoot.until_gone(BASTIONS, "cli")
