"""What is changed by hand behind an Infrastructure is put right, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from bus import streams, subjects
from bus.messages import RunRecord
from bus.transport import consumers
from bus.transport.connection import connected
from tests.api.infrastructure import infrastructures
from tests.api.infrastructure.infrastructures import ALLOW, BALANCERS, DENY, behind, pool
from tests.support.kindworld import Client, KindWorld
from tests.support.running import running, soon
from tools.bench.audit import WRITES
from windowbox.models.objects import Object
from windowbox.models.refs import (
    INFRASTRUCTURES,
    IP_POOLS,
    NAMESPACES,
    NETWORK_POLICIES,
    RUNTIME,
    ObjectRef,
    Resource,
)
from windowbox.settings.bussettings import Access

pytestmark = [pytest.mark.serves("infrastructure"), pytest.mark.asyncio(loop_scope="module")]


def written(requests: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in requests.items() if name.split()[0] in WRITES}


EVERYBODY = {"ports": [{"protocol": "TCP", "port": 1}]}


def _named(kind: Resource, name: str) -> Callable[[Client], tuple[Resource, str]]:
    return lambda _: (kind, name)


def _pool(shoot: Client) -> tuple[Resource, str]:
    return IP_POOLS, pool(shoot)


def _home(shoot: Client) -> tuple[Resource, str]:
    return NAMESPACES, behind(shoot).namespace


LONG = pytest.mark.long  # another edit of the same sort is beside it
RULES: dict[str, Any] = {"ingress": [EVERYBODY]}


@pytest.mark.parametrize(
    ("part", "edit", "calls"),
    [
        pytest.param(_named(NETWORK_POLICIES, ALLOW), {"spec": RULES}, 1, id="rules-replaced", marks=LONG),
        pytest.param(_named(NETWORK_POLICIES, DENY), {"spec": RULES}, 2, id="rules-added"),
        pytest.param(
            _named(NETWORK_POLICIES, DENY),
            {"spec": {"podSelector": {"matchLabels": {"app": "nobody"}}}},
            1,
            id="a-narrower-selector",
            marks=LONG,
        ),
        pytest.param(
            _named(NETWORK_POLICIES, BALANCERS),
            {"spec": {"podSelector": {"matchLabels": {"more": "x"}}}},
            1,
            id="one-more-label-in-a-selector",
        ),
        pytest.param(
            _named(NETWORK_POLICIES, ALLOW),
            {"spec": {"policyTypes": ["Ingress"]}},
            1,
            id="a-type-less",
            marks=LONG,
        ),
        pytest.param(
            _named(NETWORK_POLICIES, DENY),
            {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
            1,
            id="label-gone-so-that-it-is-not-watched",
        ),
        pytest.param(_pool, {"spec": {"cidr": "10.9.0.0/16"}}, 1, id="another-range"),
        pytest.param(_pool, {"spec": {"nodeSelector": None}}, 1, id="field-gone", marks=LONG),
        pytest.param(_pool, {"metadata": {"ownerReferences": None}}, 1, id="owner-gone"),
        pytest.param(_home, {"metadata": {"labels": {"gardener.cloud/role": None}}}, 1, id="our-label-gone"),
        pytest.param(
            _home, {"metadata": {"labels": {"gardener.cloud/role": "x"}}}, 1, id="our-label-other", marks=LONG
        ),
    ],
)
async def test_an_edit_is_repaired_with_fewest_calls(
    world: KindWorld, part: Callable[[Client], tuple[Resource, str]], edit: dict[str, Any], calls: int
) -> None:
    shoot = await world.shoot()
    there = await infrastructures.ready(shoot)
    kind, name = part(shoot)
    before = await there.get(kind, name)
    assert before
    foreign = {"metadata": {"labels": {"theirs": "x"}, "annotations": {"theirs": "y"}}}
    await there.merge(kind, name, foreign)
    await world.quiet()
    audit = world.audit()
    await there.merge(kind, name, edit)

    def restored(found: Object | None) -> bool:
        return (
            found is not None
            and found.spec == before.spec
            and found.labels == {**before.labels, "theirs": "x"}
            and found.metadata.get("ownerReferences") == before.metadata.get("ownerReferences")
        )

    after = await there.until(kind, name, restored)
    assert after
    assert after.annotations["theirs"] == "y"
    await world.quiet()
    assert written(audit.requests()) == {f"patch {kind.plural}": calls}


async def test_additions_of_other_programs_cause_no_write(world: KindWorld) -> None:
    shoot = await world.shoot()
    there = await infrastructures.ready(shoot)
    audit = world.audit()
    for kind, name in await infrastructures.made(shoot):
        foreign = {"metadata": {"labels": {"theirs": "x"}, "annotations": {"theirs": "y"}}}
        await there.merge(kind, name, foreign)
    other = {"apiVersion": "v1", "kind": "Namespace", "name": "default"}
    home = await there.get(NAMESPACES, "default")
    ours = await there.get(IP_POOLS, pool(shoot))
    assert home
    assert ours
    owners = [{**other, "uid": home.uid}, *ours.metadata["ownerReferences"]]
    await there.merge(IP_POOLS, pool(shoot), {"metadata": {"ownerReferences": owners}})
    await there.merge(IP_POOLS, pool(shoot), {"spec": {"blockSize": 26}})
    await shoot.ask(INFRASTRUCTURES, "local")
    await shoot.until_ready(INFRASTRUCTURES, "local")
    await world.quiet()
    assert written(audit.requests()) == {"patch infrastructures": 1, "patch infrastructures/status": 1}


async def test_policies_of_others_are_no_concern_of_an_infrastructure(world: KindWorld) -> None:
    shoot = await world.shoot()
    there = await infrastructures.ready(shoot)
    since = datetime.now(UTC)
    watched = {"app.kubernetes.io/managed-by": "provider-local"}
    policy = {"metadata": {"name": "of-a-bastion", "labels": watched}, "spec": {"podSelector": {}}}
    await there.kube.create(NETWORK_POLICIES, there.namespace, policy)
    await there.merge(NETWORK_POLICIES, "of-a-bastion", {"spec": {"policyTypes": ["Egress"]}})
    await there.kube.remove(NETWORK_POLICIES, there.namespace, "of-a-bastion")
    # A change of its own is routed after those.
    await there.kube.remove(NETWORK_POLICIES, there.namespace, DENY)
    await there.until(NETWORK_POLICIES, DENY, lambda found: found is not None)
    await world.quiet()
    runs = (await world.recorded(since, "infrastructure")).runs
    assert len([run for run in runs if shoot.namespace in run.key]) == 1


NETWORKS = [f"10.{number}.0.0/16" for number in range(30, 36)]


def _has_range(cidr: str) -> Callable[[Object | None], bool]:
    return lambda found: found is not None and found.spec["cidr"] == cidr


async def test_a_write_of_a_run_causes_no_further_run(world: KindWorld) -> None:
    """Its event comes while the run is in flight. A busy machine may announce some of them later."""
    shoot = await world.shoot()
    there = await infrastructures.ready(shoot)
    since = datetime.now(UTC)
    for cidr in NETWORKS:
        await shoot.cluster(spec={"networking": {"nodes": cidr, "pods": "10.3.0.0/16"}})
        await shoot.ask(INFRASTRUCTURES, "local")
        await there.until(IP_POOLS, pool(shoot), _has_range(cidr))
        await world.quiet()
    runs = (await world.recorded(since, "infrastructure")).runs
    assert len([run for run in runs if shoot.namespace in run.key]) < 2 * len(NETWORKS)


async def test_an_edit_right_after_a_write_of_a_run_is_repaired(world: KindWorld) -> None:
    shoot = await world.shoot()
    there = await infrastructures.ready(shoot)
    for cidr in NETWORKS:
        await shoot.cluster(spec={"networking": {"nodes": cidr, "pods": "10.3.0.0/16"}})
        await shoot.ask(INFRASTRUCTURES, "local")
        # The run that has written it may still be in flight.
        await there.until(IP_POOLS, pool(shoot), _has_range(cidr))
        await there.merge(IP_POOLS, pool(shoot), {"spec": {"cidr": "10.9.0.0/16"}})
        await there.until(IP_POOLS, pool(shoot), _has_range(cidr))


async def test_two_that_want_different_things_do_not_keep_each_other_busy(world: KindWorld) -> None:
    """Somebody else sets a field back as soon as it has been put right, and never tires."""
    shoot = await world.shoot()
    there = await infrastructures.ready(shoot)
    theirs = {"spec": {"cidr": "10.9.0.0/16"}}
    times = 0

    def ours(found: Object | None) -> bool:
        return found is not None and found.spec["cidr"] == "10.0.0.0/16"

    async def insist() -> None:
        nonlocal times
        while True:
            await there.merge(IP_POOLS, pool(shoot), theirs)
            times += 1
            await there.until(IP_POOLS, pool(shoot), ours)

    audit = world.audit()
    async with running(insist()):
        await soon(_paused(shoot))
        # The client's own wishes do not wait for those two.
        await shoot.ask(INFRASTRUCTURES, "local")
        await shoot.until_ready(INFRASTRUCTURES, "local")
    assert audit.requests()["patch ippools"] <= times + 1
    await there.until(IP_POOLS, pool(shoot), ours)


async def _paused(shoot: Client) -> None:
    """Wait for a run that leaves an object of the Shoot alone."""
    key = subjects.key(ObjectRef(RUNTIME, INFRASTRUCTURES.id, shoot.namespace, "local"))
    async with connected(Access(shoot.world.nats.url, name="test")) as bus:
        async for stored in consumers.follow(bus, streams.JOURNAL, [subjects.run("infrastructure", key)]):
            if stored and "reverts the repairs" in RunRecord.model_validate_json(stored.data).note:
                return
