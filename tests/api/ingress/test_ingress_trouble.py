"""Ingresses whose records others fight for, or refuse."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bus import streams, subjects
from bus.messages import RunRecord
from bus.transport import consumers
from bus.transport.connection import connected
from tests.api.ingress.test_ingress import (
    CONFIRMATION,
    HOST,
    MINE,
    NAME,
    address,
    digest,
    events,
    ingress,
    records,
    spec,
    until_records,
    until_records_are,
)
from tests.support.kindworld import Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from tests.support.servers import ControlPlane
from windowbox.errors import PermanentError, Unreachable, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, INGRESSES, RUNTIME, Resource
from windowbox.settings.bussettings import Access

pytestmark = [pytest.mark.serves("ingress"), pytest.mark.asyncio(loop_scope="module")]

_RULE = {"apiGroups": [DNSRECORDS.group], "apiVersions": ["*"], "resources": [DNSRECORDS.plural]}
_ADMISSION = "admissionregistration.k8s.io"
_POLICIES = Resource(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False)
_BINDINGS = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)
_WEBHOOKS = Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False)


async def test_a_conflict_over_a_record_backs_off(world: KindWorld) -> None:
    """Somebody else sets a record back as soon as it has been put right, and never tires."""
    shoot = await world.shoot()
    made = await ingress(shoot, "web", HOST, "other.test", at=("10.0.0.1",))
    other = f"web-{digest('other.test')}"
    await shoot.until(DNSRECORDS, NAME, lambda found: found is not None)

    def ours(found: Object | None) -> bool:
        return found is not None and found.spec["values"] != ["6.6.6.6"]

    async def insist() -> None:
        while True:
            await shoot.merge(DNSRECORDS, NAME, {"spec": {"values": ["6.6.6.6"]}})
            await shoot.until(DNSRECORDS, NAME, ours)

    async with running(insist()):
        await soon(_noted(world, made, "two programs"))
        # Neither the other record waits for those two, nor whoever changes the Ingress.
        before = await shoot.get(DNSRECORDS, other)
        assert before
        await shoot.delete(DNSRECORDS, other)
        await shoot.until(DNSRECORDS, other, lambda found: found is not None and found.uid != before.uid)
    await address(shoot, "web", "10.0.0.2")
    right = {NAME: ("A", HOST, ["10.0.0.2"]), other: ("A", "other.test", ["10.0.0.2"])}
    await until_records(shoot, right)


async def test_a_refusal_after_an_outage_is_reported(world: KindWorld) -> None:
    shoot = await world.shoot()
    async with _refused(shoot):
        async with _busy(shoot):
            made = await ingress(shoot, "web", HOST)
            await soon(_noted(world, made, "dnsrecords"))
            assert await events(shoot, made) == []
        assert await eventually(lambda: events(shoot, made)) == ["DNSRecordsFailed"]
    assert await records(shoot) == {}


@pytest.mark.long  # the test below, and test_ingress_dns.py, remove records
@rule("IG-3")
async def test_records_go_where_nothing_may_be_deleted_unless_that_was_confirmed(
    plane: ControlPlane, nats: NatsServer
) -> None:
    async with kind_world(plane, nats, "ingress") as world:
        shoot = await world.shoot()
        await ingress(shoot, "web", HOST, "other.test", at=("10.0.0.1",))
        await shoot.until(DNSRECORDS, NAME, lambda found: found is not None)
        await world.quiet()
    async with kind_world(plane, nats) as world:
        # Nobody is there to put the annotation back before the rule goes.
        shoot = world.client(shoot.namespace)
        await shoot.merge(DNSRECORDS, NAME, {"metadata": {"annotations": {CONFIRMATION: None}}})
        await shoot.merge(INGRESSES, "web", {"spec": spec("other.test")})
    async with (
        kind_world(plane, nats) as world,
        _protected(world.client(shoot.namespace)),
        kind_world(plane, nats, "ingress") as world,
    ):
        await world.client(shoot.namespace).until_gone(DNSRECORDS, NAME)


@rule("IG-3")
async def test_records_go_that_garbage_collection_does_not_take(world: KindWorld) -> None:
    shoot = await world.shoot()
    head = {"kind": "Ingress", "name": "web", "controller": True}
    # The garbage collector leaves alone what is owned by a kind that it does not know.
    owners = [{**head, "apiVersion": "extensions/v1beta1", "uid": str(uuid.uuid4())}]
    labels = {"origin": "provider-local", "for": "ingress"}
    for name, more in ((NAME, {"labels": labels}), (f"{NAME}-ipv6", {})):
        await shoot.create(DNSRECORDS, name, MINE, operation=None, ownerReferences=owners, **more)
    await shoot.until_gone(DNSRECORDS, NAME)
    await world.quiet()
    assert await shoot.get(DNSRECORDS, f"{NAME}-ipv6"), "not labelled as one of ours"


async def _noted(world: KindWorld, ingress: Object, text: str) -> None:
    """Wait for a run of the Ingress that ends with these words."""
    filters = [subjects.run("ingress", subjects.key(ingress.ref(RUNTIME, INGRESSES.id)))]
    async with connected(Access(world.nats.url, name="test")) as bus:
        async for stored in consumers.follow(bus, streams.JOURNAL, filters):
            if stored and text in RunRecord.model_validate_json(stored.data).note:
                return


@contextlib.asynccontextmanager
async def _refused(shoot: Client) -> AsyncIterator[None]:
    """Nobody may make DNSRecords in this namespace."""
    async with _policy(shoot, "CREATE", {"expression": "false", "message": "there are enough"}):
        await eventually(lambda: _fails(shoot, PermanentError))
        yield


@contextlib.asynccontextmanager
async def _protected(shoot: Client) -> AsyncIterator[None]:
    """As with Gardener: no DNSRecord in this namespace is deleted without the annotation that confirms it."""
    confirmed = f"oldObject.metadata.?annotations['{CONFIRMATION}'].orValue('') == 'true'"
    trial = f"trial-{uuid.uuid4().hex[:8]}"
    await shoot.create(DNSRECORDS, trial, MINE, operation=None)

    async def refused() -> bool:
        try:
            await shoot.kube.delete(DNSRECORDS, shoot.namespace, trial)
        except PermanentError:
            return True
        with contextlib.suppress(PermanentError):
            await shoot.create(DNSRECORDS, trial, MINE, operation=None)
        return False

    async with _policy(shoot, "DELETE", {"expression": confirmed}):
        await eventually(refused)
        yield


@contextlib.asynccontextmanager
async def _policy(shoot: Client, operation: str, validation: dict[str, str]) -> AsyncIterator[None]:
    """Requests about DNSRecords of this namespace have to pass the validation."""
    name, rules = f"policy-{uuid.uuid4().hex[:8]}", [{**_RULE, "operations": [operation]}]
    constraints = {"namespaceSelector": _selector(shoot), "resourceRules": rules}
    policy = {"failurePolicy": "Fail", "matchConstraints": constraints, "validations": [validation]}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    async with _made(shoot, _POLICIES, name, spec=policy), _made(shoot, _BINDINGS, name, spec=binding):
        yield


@contextlib.asynccontextmanager
async def _busy(shoot: Client) -> AsyncIterator[None]:
    """The API server cannot make DNSRecords in this namespace, since a webhook does not answer."""
    name = f"busy-{uuid.uuid4().hex[:8]}"
    hook = {
        "name": f"{name}.test.local",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{**_RULE, "operations": ["CREATE"]}],
        "namespaceSelector": _selector(shoot),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }
    async with _made(shoot, _WEBHOOKS, name, webhooks=[hook]):
        await eventually(lambda: _fails(shoot, Unreachable))
        yield


@contextlib.asynccontextmanager
async def _made(shoot: Client, resource: Resource, name: str, **content: Any) -> AsyncIterator[None]:
    head = {"apiVersion": f"{resource.group}/{resource.version}", "kind": resource.kind}
    await shoot.kube.create(resource, "", {**head, "metadata": {"name": name}, **content})
    try:
        yield
    finally:
        await shoot.kube.delete(resource, "", name)


async def _fails(shoot: Client, how: type[WindowboxError]) -> bool:
    """Whether making a DNSRecord ends like this."""
    name = f"trial-{uuid.uuid4().hex[:8]}"
    try:
        await shoot.create(DNSRECORDS, name, MINE, operation=None)
    except WindowboxError as error:
        return isinstance(error, how)
    await shoot.delete(DNSRECORDS, name)
    return False


def _selector(shoot: Client) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/metadata.name": shoot.namespace}}


async def test_hosts_beyond_the_first_hundred_are_told_and_have_no_records(world: KindWorld) -> None:
    shoot = await world.shoot()
    made = await ingress(shoot, "many", *(f"h{number}.many.test" for number in range(101)))

    async def reported() -> bool:
        return "TooManyHosts" in await events(shoot, made)

    await eventually(reported)
    await until_records_are(shoot, 100)
    await world.quiet()
    assert len(await records(shoot)) == 100
