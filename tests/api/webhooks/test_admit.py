"""A real API server asks `windowbox admit`, which has the rights of its role only."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from bus import streams, subjects
from bus.messages import ReviewRecord
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from commands.roles.admitting import admitting
from sandbox.doctor.webhooks import findings
from tests.api.webhooks.conftest import Hooks
from tests.support.admission import NAMESPACE, Seed, admitted, deployment, injected, settings_for
from tests.support.natsserver import NatsServer, ensured
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


async def reviews(bus: Bus, resource: str, namespace: str, name: str) -> list[ReviewRecord]:
    """The journal's records about an object, oldest first."""
    place = [subjects.review(subjects.key(ObjectRef(RUNTIME, resource, namespace, name)))]
    found = consumers.snapshot(bus, streams.REVIEWS, place, history=True)
    return [ReviewRecord.model_validate_json(one.data) async for one in found]


@rule("WF-20", "WF-22", "WF-63", "WF-66")
async def test_a_deployment_is_changed_before_it_is_stored(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--first")
    async with hooks.admitted():
        await hooks.asked(where)
        assert injected(await hooks.scheduler(where))
        written = await hooks.kube.get(CONFIGURATION, "", NAME)
        owner = await hooks.kube.get(NAMESPACES, "", NAMESPACE)
        assert [one["uid"] for one in written.metadata["ownerReferences"]] == [owner.uid]
        ours = SECRETS._replace(selector="manager-identity")
        secrets = (await hooks.kube.page(ours, namespace=NAMESPACE)).items
    assert {one["metadata"]["labels"]["name"] for one in secrets} == {
        "ca-provider-local-webhook",
        "ca-provider-local-webhook-bundle",
        "provider-local-webhook-server",
    }


@rule("WW-4")
async def test_an_object_older_than_the_webhook_is_changed_by_its_next_update(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--older")
    old = await hooks.kube.create(DEPLOYMENTS, where, deployment("kube-scheduler"))
    assert not injected(old)
    async with hooks.admitted():

        async def changed() -> bool:
            touch = {"metadata": {"annotations": {"touched": "1"}}}
            try:
                return injected(await hooks.kube.merge(DEPLOYMENTS, where, "kube-scheduler", touch))
            except WindowboxError:
                return False

        await eventually(changed)


@rule("WF-44", "WF-45")
async def test_a_config_without_its_cluster_is_denied_in_the_words_of_the_api(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--lost", cluster=False)
    async with hooks.admitted():
        await hooks.asked(where)
        words = (
            'admission webhook "controlplane.local.extensions.gardener.cloud" denied the request: could not '
            f"get cluster for namespace '{where}': clusters.extensions.gardener.cloud \"{where}\" not found"
        )
        with pytest.raises(WindowboxError, match=words.replace("(", r"\(")):
            await hooks.create_config(where, "one", KUBELET)
        await hooks.cluster(where)
        made = await hooks.create_config(where, "one", KUBELET)
        assert "failSwapOn: false" in made.spec["files"][0]["content"]["inline"]["data"]


async def test_decisions_are_recorded_in_the_journal(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--noted")
    async with hooks.admitted(), connected(hooks.bus.access("operator")) as bus:
        await hooks.asked(where)
        hidden = {"kubectl.kubernetes.io/last-applied-configuration": "all of it", "kept": "this"}
        await hooks.scheduler(where, annotations=hidden)

        async def annotated() -> ReviewRecord | None:
            """The record of this Deployment: those of `asked` have its name, and no annotations."""
            found = await reviews(bus, DEPLOYMENTS.id, where, "kube-scheduler")
            given = [unpacked(one.request)[0].object["metadata"] for one in found]
            return next((one for one, head in zip(found, given, strict=True) if "annotations" in head), None)

        record = await eventually(annotated)
        assert record
    assert (record.webhook, record.outcome, record.operation) == ("controlplane", "patched", "CREATE")
    assert [one["op"] for one in record.patch] == ["add"]
    given, _ = unpacked(record.request)
    assert given.object["metadata"]["annotations"] == {"kept": "this"}


async def test_doctor_says_why_webhooks_are_not_reached(hooks: Hooks) -> None:
    async def verdict(of: str = NAME) -> tuple[str, str]:
        found = {one.what: one async for one in findings(hooks.kube)}[f"MutatingWebhookConfiguration {of}"]
        return found.verdict, found.said

    async def ask(of: str, **client: str) -> None:
        """A configuration of this name, whose first webhook is called so."""
        (made,) = webhookconfigurations.for_seed(settings.webhooks, b"x")
        made["metadata"]["name"] = of
        made["webhooks"] = [{**made["webhooks"][0], "clientConfig": client, "failurePolicy": "Ignore"}]
        await hooks.kube.create(CONFIGURATION, "", made)

    settings = hooks.settings()
    foreign = base64.b64encode(hooks.plane.api.ca.certificate.read_bytes()).decode()
    async with admitted(settings):
        written = await hooks.kube.get(CONFIGURATION, "", NAME)
        assert await verdict() == ("ok", "4 webhooks")
        url = written.raw["webhooks"][0]["clientConfig"]["url"]
        await ask(f"{NAME}-runtime", url=url, caBundle=foreign)
        wrong, said = await verdict(f"{NAME}-runtime")
        assert (wrong, "its caBundle does not fit" in said) == ("wrong", True), said
        await hooks.kube.remove(CONFIGURATION, "", f"{NAME}-runtime")
        own = written.raw["webhooks"][0]["clientConfig"]["caBundle"]
        await ask(f"{NAME}-runtime", url=f"{url}/elsewhere", caBundle=own)
        assert "answers 404" in (await verdict(f"{NAME}-runtime"))[1]
    assert "does not answer" in (await verdict())[1]


async def test_second_calls_are_made_only_where_needed(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--again")
    settings = hooks.settings(second_calls=True, self_hosted=True)
    async with admitted(settings), connected(hooks.bus.access("operator")) as bus:
        await hooks.asked(where)
        assert injected(await hooks.scheduler(where))
        await hooks.kube.create(DEPLOYMENTS, where, deployment("kube-apiserver"))
        made = await hooks.create_config(where, "one", KUBELET)
        assert "failSwapOn: false" in made.spec["files"][0]["content"]["inline"]["data"]

        async def outcomes(resource: str, name: str) -> list[str]:
            return [one.outcome for one in await reviews(bus, resource, where, name)]

        async def noted() -> bool:
            return await outcomes(OPERATING_SYSTEM_CONFIGS.id, "one") == ["patched", "allowed"]

        await eventually(noted)
        # Including those of `asked`.
        assert set(await outcomes(DEPLOYMENTS.id, "kube-scheduler")) == {"patched"}
        assert await outcomes(DEPLOYMENTS.id, "kube-apiserver") == []


async def test_a_call_with_a_broken_connection_is_retried(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, read, broken = await hooks.shoot("shoot--hooks--broken"), Bodies.read, 0

    def break_first(self: Bodies, request: web.Request) -> Any:
        nonlocal broken
        if request.transport and not request.path.startswith("/again"):
            broken += 1
            request.transport.abort()
        return read(self, request)

    async with hooks.admitted(second_calls=True):
        await hooks.asked(where)
        monkeypatch.setattr(Bodies, "read", break_first)
        for _ in range(3):
            assert injected(await hooks.scheduler(where))
            await hooks.kube.remove(DEPLOYMENTS, where, "kube-scheduler")
    assert broken >= 3


async def test_reviews_are_answered_without_the_bus(
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
        await eventually(lambda: late.ready)
        assert injected(await seed.scheduler(where))


@rule("WF-3", "WF-24", "AD-50")
async def test_the_admission_of_a_garden(hooks: Hooks) -> None:
    labels = {"provider.shoot.gardener.cloud/local": "true"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "credentials", "labels": labels}}
    where = await hooks.shoot("garden-hooks", cluster=False)
    words = (
        'admission webhook "secrets.validator.admission-local.extensions.gardener.cloud" denied the request: '
        "kubeconfig is missing"
    )
    settings = hooks.settings(role="admission", second_calls=True)
    async with admitted(settings, garden=True):

        async def denied() -> bool:
            try:
                await hooks.kube.create(SECRETS, where, secret)
            except WindowboxError as error:
                return words in str(error)
            await hooks.kube.remove(SECRETS, where, "credentials")
            return False

        await eventually(denied)
        await hooks.kube.create(SECRETS, where, {**secret, "stringData": {"kubeconfig": "something"}})
        for resource in webhookconfigurations.RESOURCES.values():
            written = await hooks.kube.get(resource, "", "gardener-extension-admission-local")
            assert all(one["clientConfig"]["caBundle"] for one in written.raw["webhooks"])
    await hooks.kube.remove(SECRETS, where, "credentials")


async def test_an_incomplete_secret_of_a_certificate_ends_no_process(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--incomplete")
    async with hooks.admitted() as first:
        await hooks.asked(where)
        found = await hooks.kube.get(SECRETS, NAMESPACE, first.keeping.shown)
        # Handshakes hold the event loop: those with an RSA key take far longer.
        assert b"BEGIN EC PRIVATE KEY" in base64.b64decode(found.raw["data"]["tls.key"])
        # Times of creation are whole seconds: the next Secret is the newest.
        await asyncio.sleep(1.1)
        incomplete = {"metadata": {"name": "incomplete", "labels": found.labels}, "data": {"tls.crt": "eA=="}}
        await hooks.kube.create(SECRETS, NAMESPACE, incomplete)
        try:
            async with admitting(hooks.settings(), garden=False) as second, running(second.run()):
                await eventually(lambda: second.ready)
            await hooks.asked(where)
            assert first.keeping.shown == second.keeping.shown == found.name
        finally:
            await hooks.kube.remove(SECRETS, NAMESPACE, "incomplete")


@rule("WF-21", "WF-23")
async def test_a_foreign_change_of_a_configuration_is_undone(hooks: Hooks) -> None:
    async with hooks.admitted():
        before = await hooks.kube.get(CONFIGURATION, "", NAME)
        await hooks.kube.merge(CONFIGURATION, "", NAME, {"webhooks": [], "metadata": {"labels": None}})

        async def restored() -> bool:
            found = await hooks.kube.get(CONFIGURATION, "", NAME)
            return found.raw.get("webhooks") == before.raw["webhooks"] and found.labels == before.labels

        await eventually(restored)


@rule("WF-34", "WF-35")
async def test_control_planes_hand_new_authorities_over_to_their_shoots(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--handed")
    body = {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "ControlPlane",
        "metadata": {"name": "handed"},
        "spec": {"type": "local", "region": "local", "secretRef": {"name": "cloudprovider"}},
    }
    await hooks.kube.create(CONTROL_PLANES, where, body)
    async with hooks.admitted(), connected(hooks.bus.access("operator")) as bus:
        key = subjects.key(ObjectRef(RUNTIME, CONTROL_PLANES.id, where, "handed"))
        wish = await eventually(lambda: bus.last(streams.TRIGGERS, subjects.wish("controlplane", key)))
        assert wish
        await bus.purge(streams.TRIGGERS, subjects.wish("controlplane", key))
        await _age_authority(hooks)
        assert await eventually(lambda: bus.last(streams.TRIGGERS, subjects.wish("controlplane", key)))
    await hooks.kube.remove(CONTROL_PLANES, where, "handed")


@contextlib.asynccontextmanager
async def load(hooks: Hooks, namespace: str) -> AsyncIterator[Callable[[int], Awaitable[object]]]:
    """Create ten Deployments a second, which all have to succeed; a call waits for so many more."""
    answered = 0

    async def create(number: int) -> None:
        nonlocal answered
        await hooks.kube.create(DEPLOYMENTS, namespace, deployment("other", name=f"other-{number}"))
        answered += 1

    async def ask() -> None:
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                group.create_task(create(number))
                # The rate of requests is the subject.
                await asyncio.sleep(1 / 10)

    async def more(count: int) -> None:
        enough = answered + count
        await eventually(lambda: answered >= enough)

    async with running(ask()):
        yield more


@rule("WF-61", "WF-62", "WF-64")
async def test_a_rotation_under_load_fails_no_request(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--rotated")
    async with hooks.admitted(spread=2) as process:
        await hooks.asked(where)
        shown = process.keeping.shown
        async with load(hooks, where) as more:
            await _age_authority(hooks)
            await eventually(lambda: process.keeping.shown != shown)
            written = await hooks.kube.get(CONFIGURATION, "", NAME)
            await more(10)
    bundle = base64.b64decode(written.raw["webhooks"][0]["clientConfig"]["caBundle"])
    assert bundle.count(b"BEGIN CERTIFICATE") == 2


async def _age_authority(seed: Seed) -> None:
    """Make the authority due for renewal."""
    ours = SECRETS._replace(selector="name=ca-provider-local-webhook")
    (found,) = (await seed.kube.page(ours, namespace=NAMESPACE)).items
    now = int(time.time())
    labels = {"issued-at-time": str(now - 29 * 86400), "valid-until-time": str(now + 86400)}
    await seed.kube.merge(SECRETS, NAMESPACE, found["metadata"]["name"], {"metadata": {"labels": labels}})


@pytest.mark.long  # servers/webhooks/test_server.py ends a server that is asked
async def test_one_of_two_processes_may_end_under_load(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--two")
    settings = hooks.settings()
    async with admitted(settings):
        await hooks.asked(where)
        async with load(hooks, where) as more:
            for _ in range(2):
                async with admitting(settings, garden=False) as other, running(other.run()):
                    await eventually(lambda other=other: other.ready)  # type: ignore[misc]
                    await more(8)


async def test_a_configuration_whose_webhooks_are_all_disabled_is_emptied(hooks: Hooks) -> None:
    async with hooks.admitted():
        assert (await hooks.kube.get(CONFIGURATION, "", NAME)).raw["webhooks"]
    async with hooks.admitted(disabled=["*"]):
        assert not (await hooks.kube.get(CONFIGURATION, "", NAME)).raw.get("webhooks")


async def test_a_certificate_of_a_lost_authority_is_replaced_at_once(hooks: Hooks) -> None:
    where = await hooks.shoot("shoot--hooks--authority")
    async with hooks.admitted():
        await hooks.asked(where)
    ours = SECRETS._replace(selector="name=ca-provider-local-webhook")
    for found in (await hooks.kube.page(ours, namespace=NAMESPACE)).items:
        await hooks.kube.remove(SECRETS, NAMESPACE, found["metadata"]["name"])
    async with hooks.admitted(spread=3600):
        await hooks.asked(where)


async def test_a_runtime_cluster_has_its_own_lease_and_configuration(hooks: Hooks) -> None:
    async with hooks.admitted(), hooks.admitted(runtime=True):
        for name in (NAME, f"{NAME}-runtime"):
            assert (await hooks.kube.get(CONFIGURATION, "", name)).raw["webhooks"]
