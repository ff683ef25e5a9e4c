"""The contract that all kinds of extensions keep. `kindtable.TRAITS` lists how they differ.

The cases share a world, because starting it takes longer than most of them. Each has a Shoot of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from bus.recordings import Recording
from sandbox.servers import zoneserver
from tests.api.lifecycle.kindtable import ALIKE, EDITS, TRAITS, Bad
from tests.api.lifecycle.scenes import Servers, Stand, Subject, settings, standing
from tests.support import servers
from tests.support.kindworld import CLOUDPROVIDER, KindWorld, kind_world
from tests.support.natsserver import NatsServer, started
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from tools.bench.audit import WRITES
from windowbox.errors import Missing
from windowbox.kinds import POOLS
from windowbox.models.extensions import FORCE_DELETION, OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import (
    CLUSTERS,
    DNSRECORDS,
    MANAGED_RESOURCES,
    NAMESPACES,
    SECRETS,
    SERVICES,
    Resource,
)
from workers import replay

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORCED = {"metadata": {"annotations": {FORCE_DELETION: "true"}}}
THEIRS = {"labels": {"theirs": "x"}, "annotations": {"theirs": "y"}}
OWNING = [pool for pool in TRAITS if POOLS[pool].owns]
NEEDING = [pool for pool, traits in TRAITS.items() if traits.needs_shoot]
WITH_PROVIDER = [pool for pool in TRAITS if POOLS[pool].credentials]


def each(
    about: str, pools: Collection[str] = tuple(TRAITS), *, long: Collection[str] = ()
) -> pytest.MarkDecorator:
    """A case for each of these pools, whose id names the rules of the contract that it shows.

    Those of `long` add nothing to what the others show, or cost too much.
    """
    rules = {pool: TRAITS[pool].rules.get(about) for pool in pools}
    cases = [
        pytest.param(pool, id=f"{rules[pool]}-{pool}" if rules[pool] else pool, marks=nightly(pool, long))
        for pool in pools
    ]
    return pytest.mark.parametrize("pool", cases)


def nightly(pool: str, long: Collection[str] = ()) -> list[pytest.MarkDecorator]:
    return [pytest.mark.long] if pool in (*ALIKE, *long) else []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def everybody(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[KindWorld, Servers]]:
    """A world that serves all pools but that of DNSRecords."""
    folder = tmp_path_factory.mktemp("everybody")
    with started(NatsServer(folder / "nats")) as nats:
        made = Servers(plane, nats, folder)
        pools = [pool for pool in TRAITS if POOLS[pool].resource != DNSRECORDS]
        async with kind_world(plane, nats, *pools, kinds=settings(made)) as world:
            yield world, made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def named(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    """A world of DNSRecords, with a name server."""
    if reason := servers.missing("named"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("named")
    with (
        started(NatsServer(folder / "nats")) as nats,
        servers.name_server(folder / "named", key=zoneserver.new_key()) as server,
    ):
        async with standing(Servers(plane, nats, folder, server), "dnsrecord") as made:
            yield made


@pytest.fixture
def shared(request: pytest.FixtureRequest, pool: str) -> Stand:
    if POOLS[pool].resource == DNSRECORDS:
        named: Stand = request.getfixturevalue("named")
        return named
    world, made = request.getfixturevalue("everybody")
    return Stand(POOLS[pool], world, made)


@pytest_asyncio.fixture(loop_scope="module")
async def stand(shared: Stand) -> Stand:
    return await shared.another()


@pytest_asyncio.fixture(loop_scope="module")
async def subject(stand: Stand) -> AsyncIterator[Subject]:
    made = await stand.subject()
    async with made.with_others():
        yield made


def written(requests: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in requests.items() if name.split()[0] in WRITES}


def uids(owned: dict[tuple[Resource, str], Object]) -> dict[tuple[Resource, str], str]:
    return {key: one.uid for key, one in owned.items()}


async def replays(stand: Stand, began: datetime) -> Recording:
    """Require that the runs since then do the same again in a replay."""
    await stand.world.quiet()
    recording = await stand.world.recorded(began, stand.row.pool)
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 2
    return recording


@each("life", long=("dnsrecord",))
async def test_a_life_leaves_nothing_behind_and_replays(stand: Stand, subject: Subject) -> None:
    began = datetime.now(UTC)
    await subject.create()
    found = await subject.ready()
    assert found.last_operation["type"] == "Create"
    [finalizer] = found.finalizers
    assert finalizer.startswith("extensions.gardener.cloud/")
    owned = await subject.owned()
    secrets = [one.raw.get("data") or {} for (kind, _), one in owned.items() if kind == SECRETS]
    texts = [text for data in secrets for text in data.values() if len(text) > 20]
    texts = [text for text in texts if text not in str(found.spec)]
    await subject.gone()

    async def nothing() -> bool:
        return not await stand.left()

    await eventually(nothing)
    recording = await replays(stand, began)
    recorded = "".join(run.model_dump_json() for run in recording.runs)
    assert not [text for text in texts if text in recorded]


@each("again", long=("controlplane", "exposure", "backupbucket", "backupentry", "dnsrecord"))
async def test_a_second_reconcile_writes_only_its_report(subject: Subject) -> None:
    await subject.create()
    await subject.ready()
    audit = subject.shoot.world.audit()
    await subject.ask()
    await subject.ready()
    plural = subject.row.resource.plural
    assert written(audit.requests()) == {f"patch {plural}": 1, f"patch {plural}/status": 1}


@each("drift", OWNING, long=("controlplane", "exposure"))
async def test_owned_objects_are_restored_after_edits_and_deletions(subject: Subject, pool: str) -> None:
    await subject.create()
    before = await subject.ready()
    owned = {key: one for key, one in (await subject.owned()).items() if key[0] in subject.row.owns}
    assert owned
    # Step by step for all objects at once: after five repairs of one owner windowbox backs off.
    edits = EDITS | {SERVICES: {"spec": TRAITS[pool].service}}
    for (kind, name), one in owned.items():
        for edit in ({"metadata": THEIRS}, edits.get(kind, {})):
            await subject.at(kind, one).merge(kind, name, edit)
    restored = partial(_as_it_was, labels=THEIRS["labels"])
    for (kind, name), one in owned.items():
        await subject.at(kind, one).until(kind, name, partial(restored, one))
    for (kind, name), one in owned.items():
        found = await subject.at(kind, one).get(kind, name)
        assert found
        assert found.annotations["theirs"] == "y"
    # The deletion of a namespace deletes the objects in it, so namespaces come last.
    for last in (False, True):
        step = {key: one for key, one in owned.items() if (key[0] == NAMESPACES) is last}
        for (kind, name), one in step.items():
            await subject.at(kind, one).delete(kind, name)
        for (kind, name), one in step.items():
            await subject.at(kind, one).until(kind, name, partial(_is_another, one))
    for (kind, name), one in owned.items():
        await subject.at(kind, one).until(kind, name, lambda found: bool(found and not found.deleting))
    await subject.shoot.world.quiet()
    after = await subject.get()
    assert after.last_operation == before.last_operation


def _as_it_was(one: Object, found: Object | None, labels: dict[str, str] | None = None) -> bool:
    """Whether an object equals its former version, except for fields that the API server fills in."""
    filled_in = ("clusterIP", "clusterIPs", "healthCheckNodePort", "nodeName")
    return (
        found is not None
        and _without(found.spec, *filled_in) == _without(one.spec, *filled_in)
        and dict(found.labels) == dict(one.labels) | (labels or {})
    )


def _is_another(one: Object, found: Object | None) -> bool:
    return _as_it_was(one, found) and found is not None and found.uid != one.uid


def _without(spec: Any, *fields: str) -> Any:
    ports = [{k: v for k, v in port.items() if k != "nodePort"} for port in spec.get("ports", [])]
    return {k: v for k, v in spec.items() if k not in fields} | ({"ports": ports} if ports else {})


def migrated(found: Object | None) -> bool:
    if found is None or found.finalizers or OPERATION in found.annotations:
        return False
    return (found.last_operation.get("type"), found.last_operation.get("state")) == ("Migrate", "Succeeded")


@each("migration", [pool for pool, traits in TRAITS.items() if traits.migrates], long=("dnsrecord",))
async def test_migration_releases_and_restoration_takes_over(subject: Subject, pool: str) -> None:
    await subject.create()
    await subject.ready()
    before = uids(await subject.owned())
    await subject.ask("migrate")
    await subject.until(migrated)
    await subject.shoot.world.quiet()
    after = await subject.owned()
    if TRAITS[pool].keeps:
        assert uids(after) == before
        for kind, name in [key for key in before if key[0] in subject.row.owns][-1:]:
            client = subject.at(kind, after[kind, name])
            await client.delete(kind, name)
            await subject.shoot.world.quiet()
            assert await client.get(kind, name) is None  # no seed repairs it in between
    else:
        assert not [key for key in after if key[0] == MANAGED_RESOURCES]
    # Otherwise its client would take the success of the migration for that of the restoration.
    assert (await _restored(subject)).last_operation["type"] == "Restore"
    found = await subject.ready()
    assert found.last_operation["type"] == "Restore"
    assert found.finalizers
    restored = uids(await subject.owned())
    assert {kind for kind, _ in restored} == {kind for kind, _ in before}
    if TRAITS[pool].keeps:
        assert restored.keys() == before.keys()
        assert len(before.items() - restored.items()) <= 1
    await subject.gone()


async def _restored(subject: Subject) -> Object:
    """The first version without the annotation: for its client, the restoration may be done."""
    watching, asked = asyncio.Event(), False

    def is_done(found: Object | None) -> bool:
        nonlocal asked
        watching.set()
        asked = asked or (found is not None and OPERATION in found.annotations)
        return asked and found is not None and OPERATION not in found.annotations

    first = asyncio.create_task(subject.until(is_done))
    await watching.wait()
    await subject.ask("restore")
    return await first


@each(
    "migration",
    [pool for pool, traits in TRAITS.items() if not traits.migrates],
    long=("exposure", "backupbucket"),
)
async def test_kinds_of_one_seed_ignore_a_migration(subject: Subject) -> None:
    await subject.create("migrate")
    await subject.until(lambda found: bool(found and found.last_operation.get("state") == "Succeeded"))
    before = uids(await subject.owned())
    await subject.ask("migrate")
    await subject.shoot.world.quiet()
    found = await subject.get()
    assert found.annotations[OPERATION] == "migrate"
    assert found.finalizers
    assert found.last_operation["type"] == "Create"
    assert uids(await subject.owned()) == before
    await subject.gone()


@each("credentials", WITH_PROVIDER, long=("exposure",))
async def test_missing_credentials_are_reported(subject: Subject) -> None:
    await subject.shoot.delete(SECRETS, CLOUDPROVIDER)
    await subject.create()
    found = await subject.failed()
    assert found.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHENTICATED"]
    assert await subject.owned() == {}
    await subject.shoot.secret(CLOUDPROVIDER, kubeconfig=subject.shoot.world.kubeconfig())
    await subject.ask()
    await subject.ready()


@each("forced", WITH_PROVIDER, long=("exposure",))
@pytest.mark.parametrize("secret", ["gone", pytest.param("unusable", marks=pytest.mark.long), "unreachable"])
async def test_a_forced_deletion_needs_no_provider(subject: Subject, secret: str) -> None:
    await subject.create()
    await subject.ready()
    match secret:
        case "gone":
            await subject.shoot.delete(SECRETS, CLOUDPROVIDER)
        case "unusable":
            await subject.shoot.secret(CLOUDPROVIDER, kubeconfig=b"users: [{exec: {command: /bin/false}}]")
        case _:
            await subject.shoot.secret(CLOUDPROVIDER, kubeconfig=subject.shoot.world.unreachable())
    if secret == "gone":
        await subject.delete()
        failed = await subject.failed()
        assert failed.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHENTICATED"]
        assert failed.finalizers
    await subject.shoot.merge(subject.row.resource, subject.name, FORCED)
    await subject.cluster(**FORCED)
    await subject.shoot.world.quiet()
    if secret != "gone":
        await subject.delete()
    with contextlib.suppress(Missing):  # a retry may have deleted it already
        await subject.ask()
    await subject.shoot.until_gone(subject.row.resource, subject.name)
    assert await subject.owned()  # left behind


def spoilings(daily: Callable[[Bad], bool]) -> list[Any]:
    """The bad input of all pools; that which is not `daily` is long."""
    return [
        pytest.param(pool, bad, id=f"{bad.case}-{pool}", marks=[] if daily(bad) else pytest.mark.long)
        for pool, traits in TRAITS.items()
        for bad in traits.bad
    ]


@pytest.mark.parametrize(("pool", "bad"), spoilings(lambda bad: bad.daily))
async def test_bad_input_creates_nothing_and_is_named(subject: Subject, bad: Bad) -> None:
    await spoilt(subject, bad)
    error = (await subject.failed()).status["lastError"]
    assert bad.says in error["description"]
    assert error["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert len(error["description"]) < 2500
    assert await subject.owned() == {}
    await subject.gone()


async def spoilt(subject: Subject, bad: Bad) -> None:
    """Create the object with bad input."""
    if bad.shoot:
        await subject.cluster(**bad.shoot)
        await subject.shoot.world.quiet()
    await subject.create(**bad.spec)


@pytest.mark.parametrize(("pool", "bad"), spoilings(lambda bad: bad.corrected))
async def test_bad_input_can_be_corrected(stand: Stand, subject: Subject, bad: Bad) -> None:
    began = datetime.now(UTC)
    await spoilt(subject, bad)
    await subject.failed()
    await subject.cluster()
    await subject.shoot.world.quiet()
    right = subject.body["spec"]
    await subject.ask(spec={field: right.get(field) for field in bad.spec})
    await subject.ready()
    await subject.gone()
    await replays(stand, began)


@each("cluster", NEEDING, long=(*set(NEEDING) - {"infrastructure", "local-ext-shoot-after-worker"},))
async def test_an_object_waits_for_its_cluster(subject: Subject) -> None:
    await subject.shoot.delete(CLUSTERS, subject.shoot.namespace)
    await subject.shoot.world.quiet()
    await subject.create()
    await subject.shoot.world.quiet()
    waiting = await subject.get()
    assert (waiting.status, waiting.finalizers) == ({}, ())
    await subject.cluster()
    await subject.ready()


@each("failed", NEEDING, long=(*set(NEEDING) - {"infrastructure", "bastion", "operatingsystemconfig"},))
async def test_a_failed_shoot_stops_most_kinds(subject: Subject, pool: str) -> None:
    await subject.cluster(status={"lastOperation": {"state": "Failed", "type": "Reconcile"}})
    await subject.shoot.world.quiet()
    await subject.create()
    if not TRAITS[pool].stops_on_failed_shoot:
        await subject.ready()
        return
    await subject.shoot.world.quiet()
    assert (await subject.get()).status == {}
    assert await subject.owned() == {}
    await subject.cluster()
    await subject.shoot.world.quiet()
    await subject.ask()
    await subject.ready()
