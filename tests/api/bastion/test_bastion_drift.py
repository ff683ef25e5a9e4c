"""What is changed by hand behind a Bastion is put right, and nobody's sessions are cut without need."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.api.bastion import bastions
from tests.api.bastion.bastions import IMAGE, Yard, written, yard
from tests.support.kindworld import KindWorld
from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import BASTIONS, NETWORK_POLICIES, PODS, SERVICES, Resource

pytestmark = pytest.mark.serves("bastion")

NAME = "bastion-cli"
NEWER = "registry.local/node:v2.0.0"


@pytest_asyncio.fixture
async def standing(world: KindWorld) -> Yard:
    """A Bastion that is ready."""
    made = await yard(world)
    await made.create()
    await made.ready()
    await world.quiet()
    return made


def _another(former: Object | None, found: Object | None) -> bool:
    return bool(former and found and found.uid != former.uid and not found.deleting)


@pytest.mark.parametrize("resource", [PODS, SERVICES, NETWORK_POLICIES], ids=lambda found: found.kind)
async def test_what_is_deleted_comes_back(standing: Yard, resource: Resource) -> None:
    former = await standing.there.get(resource, NAME)
    await standing.there.delete(resource, NAME)
    found = await standing.there.until(resource, NAME, lambda found: _another(former, found))
    assert former
    assert found
    assert found.labels == former.labels
    bastion = await standing.shoot.get(BASTIONS, "cli")
    assert bastion
    assert bastion.last_operation["state"] == "Succeeded"


async def test_a_pod_that_has_ended_is_replaced(standing: Yard) -> None:
    former = await standing.there.get(PODS, NAME)
    ended = {"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]}
    await standing.there.merge(PODS, NAME, {"status": ended}, part="status")
    await standing.there.until(PODS, NAME, lambda found: _another(former, found))
    await standing.started()
    await standing.shoot.ask(BASTIONS, "cli")
    await standing.shoot.until_ready(BASTIONS, "cli")


async def test_a_pod_of_another_program_stays_as_it_is(world: KindWorld) -> None:
    """Nobody may change the spec of a Pod, and this one has no readiness probe."""
    made = await yard(world)
    labels = {"app": "bastion", "bastion": "cli"}
    pod = {
        "metadata": {"name": NAME, "labels": labels},
        "spec": {"containers": [{"name": "machine", "image": IMAGE}]},
    }
    former = await made.there.kube.create(PODS, made.there.namespace, pod)
    await made.create()
    await made.ready()
    found = await made.there.get(PODS, NAME)
    assert found
    assert found.uid == former.uid
    assert found.annotations.keys() >= {"windowbox/made-for"}


@rule("BA-5", "B.5")
async def test_a_door_that_was_opened_by_hand_is_closed(standing: Yard) -> None:
    everybody = {"spec": {"loadBalancerSourceRanges": ["0.0.0.0/0"]}}
    await standing.there.merge(SERVICES, NAME, everybody)
    await standing.there.until(
        SERVICES,
        NAME,
        lambda found: bool(found and found.spec["loadBalancerSourceRanges"] == ["203.0.113.7/32"]),
    )


async def test_an_edited_service_leads_to_the_bastion_again(standing: Yard) -> None:
    await standing.there.merge(SERVICES, NAME, {"spec": {"selector": {"more": "x"}}})
    ours = {"app": "bastion", "bastion": "cli"}
    await standing.there.until(SERVICES, NAME, lambda found: bool(found and found.spec["selector"] == ours))


async def test_what_others_have_put_on_our_objects_stays(standing: Yard) -> None:
    theirs = {"metadata": {"labels": {"team": "a"}, "annotations": {"example.com/note": "b"}}}
    for resource in bastions.PARTS:
        await standing.there.merge(resource, NAME, theirs)
    await standing.there.merge(SERVICES, NAME, {"spec": {"loadBalancerSourceRanges": None}})
    await standing.shoot.ask(BASTIONS, "cli", spec=bastions.spec("203.0.113.8/32"))
    await standing.shoot.until_ready(BASTIONS, "cli")
    for resource in bastions.PARTS:
        found = await standing.there.get(resource, NAME)
        assert found
        assert found.labels["team"] == "a"
        assert found.annotations["example.com/note"] == "b"
    service = await standing.there.get(SERVICES, NAME)
    assert service
    assert service.spec["loadBalancerSourceRanges"] == ["203.0.113.8/32"]


@rule("BA-1")
async def test_a_newer_image_is_for_new_bastions(standing: Yard) -> None:
    newer = bastions.cloud_profile(("1.0.0", IMAGE), ("2.0.0", NEWER))
    former = await standing.there.get(PODS, NAME)
    await standing.shoot.cluster(cloudProfile=newer)
    await standing.shoot.ask(BASTIONS, "cli", spec=bastions.spec("203.0.113.9/32"))
    await standing.shoot.until_ready(BASTIONS, "cli")
    pod = await standing.there.get(PODS, NAME)
    assert former
    assert pod
    assert (pod.uid, pod.spec["containers"][0]["image"]) == (former.uid, IMAGE)
    await standing.create("new")
    pod = await standing.there.until(PODS, "bastion-new", lambda found: found is not None)
    assert pod
    assert pod.spec["containers"][0]["image"] == NEWER


async def test_what_others_report_makes_nobody_write(standing: Yard, world: KindWorld) -> None:
    audit = world.audit()
    condition = [{"type": "Ready", "status": "True"}, {"type": "Example", "status": "True"}]
    await standing.there.merge(PODS, NAME, {"status": {"conditions": condition}}, part="status")
    await standing.there.merge(SERVICES, NAME, {"metadata": {"annotations": {"example.com/note": "b"}}})
    await standing.there.until(
        SERVICES, NAME, lambda found: bool(found and found.annotations.get("example.com/note"))
    )
    await world.quiet()
    assert written(audit.requests()) == {}
