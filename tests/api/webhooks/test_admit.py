"""A real API server asks `windowbox admit`, which has the rights of its role only."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import pytest
from aiohttp import web

from bus import streams, subjects
from bus.messages import ReviewRecord
from bus.transport import consumers
from bus.transport.connection import connected
from commands.roles.admitting import admitting
from sandbox.doctor.webhooks import findings
from tests.support.admission import NAMESPACE, Seed, admitted, deployment, injected, settings_for, steadily
from tests.support.natsserver import NatsServer, ensured
from tests.support.roles import RoleServer
from tests.support.rules import rule
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from webhooks.connections import Bodies
from webhooks.journal import unpacked
from windowbox.errors import WindowboxError
from windowbox.models.refs import (
    CONTROL_PLANES,
    DEPLOYMENTS,
    NAMESPACES,
    OPERATING_SYSTEM_CONFIGS,
    RUNTIME,
    SECRETS,
    ObjectRef,
)
from windowbox.rights import webhookconfigurations
from windowbox.settings.bussettings import Access

CONFIGURATION = webhookconfigurations.RESOURCES["MutatingWebhookConfiguration"]
NAME = "gardener-extension-provider-local"
KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: true\n"


@rule("WF-20", "WF-22", "WF-63", "WF-66")
async def test_a_deployment_is_changed_before_it_is_stored(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--first")
    async with admitted(settings_for(plane, bus_server)):
        await seed.asked(where)
        assert injected(await seed.scheduler(where))
        written = await seed.kube.get(CONFIGURATION, "", NAME)
        owner = await seed.kube.get(NAMESPACES, "", NAMESPACE)
        assert [one["uid"] for one in written.metadata["ownerReferences"]] == [owner.uid]
        labels = {
            one["metadata"]["labels"]["name"]
            for one in (
                await seed.kube.page(SECRETS._replace(selector="manager-identity"), namespace=NAMESPACE)
            ).items
        }
    assert labels == {
        "ca-provider-local-webhook",
        "ca-provider-local-webhook-bundle",
        "provider-local-webhook-server",
    }


@rule("WW-4")
async def test_an_object_older_than_the_webhook_is_changed_by_its_next_update(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--older")
    old = await seed.kube.create(DEPLOYMENTS, where, deployment("kube-scheduler"))
    assert not injected(old)
    async with admitted(settings_for(plane, bus_server)):

        async def changed() -> bool:
            try:
                found = await seed.kube.merge(
                    DEPLOYMENTS, where, "kube-scheduler", {"metadata": {"annotations": {"touched": "1"}}}
                )
            except WindowboxError:
                return False
            return injected(found)

        await eventually(changed)


@rule("WF-44", "WF-45")
async def test_a_config_without_its_cluster_is_denied_in_the_words_of_the_api(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--lost", cluster=False)
    async with admitted(settings_for(plane, bus_server)):
        await seed.asked(where)
        words = (
            'admission webhook "controlplane.local.extensions.gardener.cloud" denied the request: could not '
            f"get cluster for namespace '{where}': clusters.extensions.gardener.cloud \"{where}\" not found"
        )
        with pytest.raises(WindowboxError, match=words.replace("(", r"\(")):
            await seed.create_config(where, "one", KUBELET)
        await seed.cluster(where)
        made = await seed.create_config(where, "one", KUBELET)
        assert "failSwapOn: false" in made.spec["files"][0]["content"]["inline"]["data"]


async def test_decisions_are_noted_in_the_journal(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--noted")
    async with admitted(settings_for(plane, bus_server)), connected(bus_server.access("operator")) as bus:
        await seed.asked(where)
        hidden = {"kubectl.kubernetes.io/last-applied-configuration": "all of it", "kept": "this"}
        await seed.scheduler(where, annotations=hidden)
        ref = ObjectRef(RUNTIME, DEPLOYMENTS.id, where, "kube-scheduler")

        async def noted() -> list[ReviewRecord]:
            place = [subjects.review(subjects.key(ref))]
            found = consumers.snapshot(bus, streams.REVIEWS, place, history=True)
            return [ReviewRecord.model_validate_json(one.data) async for one in found]

        record = (await eventually(noted))[-1]
    assert (record.webhook, record.outcome, record.operation) == ("controlplane", "patched", "CREATE")
    assert [one["op"] for one in record.patch] == ["add"]
    given, _ = unpacked(record.request)
    assert given.object["metadata"]["annotations"] == {"kept": "this"}


async def test_doctor_tells_why_an_api_server_is_not_answered(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    async def verdict(of: str = NAME) -> tuple[str, str]:
        found = {one.what: one async for one in findings(seed.kube)}[f"MutatingWebhookConfiguration {of}"]
        return found.verdict, found.said

    async def ask(of: str, **client: str) -> None:
        """A configuration of this name, whose first webhook is called so."""
        (made,) = webhookconfigurations.for_seed(settings.webhooks, b"x")
        made["metadata"]["name"] = of
        made["webhooks"] = [{**made["webhooks"][0], "clientConfig": client, "failurePolicy": "Ignore"}]
        await seed.kube.create(CONFIGURATION, "", made)

    settings = settings_for(plane, bus_server)
    foreign = base64.b64encode(plane.api.ca.certificate.read_bytes()).decode()
    async with admitted(settings):
        written = await seed.kube.get(CONFIGURATION, "", NAME)
        assert await verdict() == ("ok", "4 webhooks")
        url = written.raw["webhooks"][0]["clientConfig"]["url"]
        await ask(f"{NAME}-runtime", url=url, caBundle=foreign)
        wrong, said = await verdict(f"{NAME}-runtime")
        assert (wrong, "its caBundle does not fit" in said) == ("wrong", True), said
        await seed.kube.remove(CONFIGURATION, "", f"{NAME}-runtime")
        own = written.raw["webhooks"][0]["clientConfig"]["caBundle"]
        await ask(f"{NAME}-runtime", url=f"{url}/elsewhere", caBundle=own)
        assert "answers 404" in (await verdict(f"{NAME}-runtime"))[1]
    assert "does not answer" in (await verdict())[1]


async def test_second_calls_are_made_only_for_what_still_matters(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--again")
    settings = settings_for(plane, bus_server, second_calls=True, self_hosted=True)
    async with admitted(settings), connected(bus_server.access("operator")) as bus:
        await seed.asked(where)
        assert injected(await seed.scheduler(where))
        await seed.kube.create(DEPLOYMENTS, where, deployment("kube-apiserver"))
        made = await seed.create_config(where, "one", KUBELET)
        assert "failSwapOn: false" in made.spec["files"][0]["content"]["inline"]["data"]

        async def outcomes(resource: str, name: str) -> list[str]:
            place = [subjects.review(subjects.key(ObjectRef(RUNTIME, resource, where, name)))]
            found = consumers.snapshot(bus, streams.REVIEWS, place, history=True)
            return [ReviewRecord.model_validate_json(one.data).outcome async for one in found]

        async def noted() -> bool:
            return await outcomes(OPERATING_SYSTEM_CONFIGS.id, "one") == ["patched", "allowed"]

        await eventually(noted)
        # Those of before, too, that showed that the API server asks.
        assert set(await outcomes(DEPLOYMENTS.id, "kube-scheduler")) == {"patched"}
        assert await outcomes(DEPLOYMENTS.id, "kube-apiserver") == []


async def test_a_call_whose_connection_breaks_is_made_again(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, read, broken = await seed.shoot("shoot--hooks--broken"), Bodies.read, 0

    def break_first(self: Bodies, request: web.Request) -> Any:
        nonlocal broken
        if request.transport and not request.path.startswith("/again"):
            broken += 1
            request.transport.abort()
        return read(self, request)

    async with admitted(settings_for(plane, bus_server, second_calls=True)):
        await seed.asked(where)
        monkeypatch.setattr(Bodies, "read", break_first)
        for _ in range(3):
            assert injected(await seed.scheduler(where))
            await seed.kube.remove(DEPLOYMENTS, where, "kube-scheduler")
    assert broken >= 3


async def test_reviews_are_answered_while_the_bus_is_away(
    plane: ControlPlane, nats: NatsServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--alone")
    async with connected(Access(nats.url)) as bus:
        await ensured(bus)
    settings = settings_for(plane, nats.url)
    async with admitted(settings):
        await seed.asked(where)
        nats.stop()
        made = await seed.create_config(where, "one", KUBELET)
        assert "failSwapOn: false" in made.spec["files"][0]["content"]["inline"]["data"]
    async with admitting(settings, garden=False) as late, running(late.run()):  # begins without the bus
        await eventually(lambda: _is(late.ready))
        assert injected(await seed.scheduler(where))


@rule("WF-3", "WF-24", "AD-50")
async def test_the_admission_of_a_garden(plane: ControlPlane, bus_server: RoleServer, seed: Seed) -> None:
    labels = {"provider.shoot.gardener.cloud/local": "true"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "credentials", "labels": labels}}
    where = await seed.shoot("garden-hooks", cluster=False)
    words = (
        'admission webhook "secrets.validator.admission-local.extensions.gardener.cloud" denied the request: '
        "kubeconfig is missing"
    )
    settings = settings_for(plane, bus_server, role="admission", second_calls=True)
    async with admitted(settings, garden=True):

        async def denied() -> bool:
            try:
                await seed.kube.create(SECRETS, where, secret)
            except WindowboxError as error:
                return words in str(error)
            await seed.kube.remove(SECRETS, where, "credentials")
            return False

        await eventually(denied)
        await seed.kube.create(SECRETS, where, {**secret, "stringData": {"kubeconfig": "something"}})
        for resource in webhookconfigurations.RESOURCES.values():
            written = await seed.kube.get(resource, "", "gardener-extension-admission-local")
            assert all(one["clientConfig"]["caBundle"] for one in written.raw["webhooks"])
    await seed.kube.remove(SECRETS, where, "credentials")


@rule("WF-21", "WF-23")
async def test_a_configuration_that_others_have_changed_is_written_again(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    async with admitted(settings_for(plane, bus_server)):
        before = await seed.kube.get(CONFIGURATION, "", NAME)
        await seed.kube.merge(CONFIGURATION, "", NAME, {"webhooks": [], "metadata": {"labels": None}})

        async def restored() -> bool:
            found = await seed.kube.get(CONFIGURATION, "", NAME)
            return found.raw.get("webhooks") == before.raw["webhooks"] and found.labels == before.labels

        await eventually(restored)


@rule("WF-34", "WF-35")
async def test_control_planes_hand_new_authorities_over_to_their_shoots(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--handed")
    body = {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "ControlPlane",
        "metadata": {"name": "handed"},
        "spec": {"type": "local", "region": "local", "secretRef": {"name": "cloudprovider"}},
    }
    await seed.kube.create(CONTROL_PLANES, where, body)
    async with admitted(settings_for(plane, bus_server)), connected(bus_server.access("operator")) as bus:
        key = subjects.key(ObjectRef(RUNTIME, CONTROL_PLANES.id, where, "handed"))
        wish = await eventually(lambda: bus.last(streams.TRIGGERS, subjects.wish("controlplane", key)))
        assert wish
        await bus.purge(streams.TRIGGERS, subjects.wish("controlplane", key))
        await _age_authority(seed)
        assert await eventually(lambda: bus.last(streams.TRIGGERS, subjects.wish("controlplane", key)))
    await seed.kube.remove(CONTROL_PLANES, where, "handed")


@rule("WF-61", "WF-62", "WF-64")
async def test_a_rotation_under_load_fails_no_request(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--rotated")
    async with admitted(settings_for(plane, bus_server, spread=2)) as process:
        await seed.asked(where)
        ended, shown, answered = asyncio.Event(), process.keeping.shown, 0

        async def ask(number: int) -> None:
            nonlocal answered
            await seed.kube.create(DEPLOYMENTS, where, deployment("other", name=f"other-{number}"))
            answered += 1

        asking = asyncio.create_task(steadily(ask, 25, ended))
        await _age_authority(seed)
        await eventually(lambda: _is(process.keeping.shown != shown))
        written = await seed.kube.get(CONFIGURATION, "", NAME)
        enough = answered + 25
        await eventually(lambda: _is(answered >= enough or asking.done()))
        ended.set()
        assert await asking >= enough
    bundle = base64.b64decode(written.raw["webhooks"][0]["clientConfig"]["caBundle"])
    assert bundle.count(b"BEGIN CERTIFICATE") == 2


async def _is(holds: bool) -> bool:
    return holds


async def _age_authority(seed: Seed) -> None:
    """Have the authority look as if it were to be renewed by now."""
    ours = SECRETS._replace(selector="name=ca-provider-local-webhook")
    (found,) = (await seed.kube.page(ours, namespace=NAMESPACE)).items
    now = int(time.time())
    labels = {"issued-at-time": str(now - 29 * 86400), "valid-until-time": str(now + 86400)}
    await seed.kube.merge(SECRETS, NAMESPACE, found["metadata"]["name"], {"metadata": {"labels": labels}})


async def test_one_of_two_processes_may_end_under_load(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--two")
    settings = settings_for(plane, bus_server)
    async with admitted(settings):
        await seed.asked(where)
        ended, answered = asyncio.Event(), 0

        async def ask(number: int) -> None:
            nonlocal answered
            await seed.kube.create(DEPLOYMENTS, where, deployment("other", name=f"other-{number}"))
            answered += 1

        asking = asyncio.create_task(steadily(ask, 25, ended))
        for _ in range(3):
            async with admitting(settings, garden=False) as other, running(other.run()):
                await eventually(lambda other=other: _is(other.ready))  # type: ignore[misc]
                enough = answered + 20
                await eventually(lambda enough=enough: _is(answered > enough or asking.done()))  # type: ignore[misc]
        ended.set()
        assert await asking > 60


async def test_a_configuration_whose_webhooks_are_all_disabled_is_emptied(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    async with admitted(settings_for(plane, bus_server)):
        assert (await seed.kube.get(CONFIGURATION, "", NAME)).raw["webhooks"]
    async with admitted(settings_for(plane, bus_server, disabled=["*"])):
        assert not (await seed.kube.get(CONFIGURATION, "", NAME)).raw.get("webhooks")


async def test_a_certificate_of_a_lost_authority_is_replaced_at_once(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    where = await seed.shoot("shoot--hooks--authority")
    async with admitted(settings_for(plane, bus_server)):
        await seed.asked(where)
    ours = SECRETS._replace(selector="name=ca-provider-local-webhook")
    for found in (await seed.kube.page(ours, namespace=NAMESPACE)).items:
        await seed.kube.remove(SECRETS, NAMESPACE, found["metadata"]["name"])
    async with admitted(settings_for(plane, bus_server, spread=3600)):
        await seed.asked(where)


async def test_a_runtime_cluster_has_a_lease_and_a_configuration_of_its_own(
    plane: ControlPlane, bus_server: RoleServer, seed: Seed
) -> None:
    async with (
        admitted(settings_for(plane, bus_server)),
        admitted(settings_for(plane, bus_server, runtime=True)),
    ):
        for name in (NAME, f"{NAME}-runtime"):
            assert (await seed.kube.get(CONFIGURATION, "", name)).raw["webhooks"]
