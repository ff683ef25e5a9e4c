"""A real API server asks the admission of a cloud, which has the rights of its role only."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from bus import streams, subjects
from bus.transport import consumers
from bus.transport.connection import connected
from tests.api.webhooks.conftest import Hooks
from tests.support import cloudobjects, standins
from tests.support.admission import admitted, settings_for
from tests.support.cloudobjects import NAMESPACE, for_admission, one, provider, shoot
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object, from_base64
from windowbox.models.refs import (
    CLOUD_PROFILES,
    CREDENTIALS_BINDINGS,
    NAMESPACES,
    SECRETS,
    SERVICES,
    SHOOTS,
)
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings.cloudsettings import CloudSettings

CONFIGURATION = configurations.RESOURCES["MutatingWebhookConfiguration"]
AWS = "service.beta.kubernetes.io/aws-load-balancer-"
CLOUD = "openstack"
"""Its check reads all that a check may read: profile, binding and Secret."""
SECRET = f"core-{CLOUD}"


@pytest_asyncio.fixture
async def garden(hooks: Hooks) -> AsyncIterator[Hooks]:
    """A namespace of a garden with the kinds of Gardener. Nothing is left behind."""
    standins.define(hooks.plane.api)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    with contextlib.suppress(WindowboxError):
        await hooks.kube.create(NAMESPACES, "", body)
    yield hooks
    await hooks.clear()
    await hooks.kube.remove(SECRETS, NAMESPACE, SECRET)
    standins.remove(hooks.plane.api)


async def denied(hooks: Hooks) -> bool:
    """Whether the API server knows the configuration."""
    secret = {**cloudobjects.secret(CLOUD), "data": {}}
    try:
        await hooks.kube.create(SECRETS, NAMESPACE, secret)
    except WindowboxError as error:
        return "openstack.secrets.validator" in str(error)
    await hooks.kube.remove(SECRETS, NAMESPACE, SECRET)
    return False


@rule("ALL-3", "OST-X1")
async def test_a_shoot_is_checked_and_changed_before_it_is_stored(garden: Hooks) -> None:
    kube = garden.kube
    settings = settings_for(garden.plane, garden.bus, role="admission")
    settings = settings.model_copy(update={"clouds": CloudSettings(types=(CLOUD,))})
    async with admitted(settings, garden=True):
        await eventually(partial(denied, garden))
        secret = cloudobjects.secret(CLOUD)
        await kube.create(SECRETS, NAMESPACE, secret)
        await kube.create(CLOUD_PROFILES, "", for_admission(one(CLOUD, "CloudProfile"), CLOUD))
        binding = cloudobjects.credentials_binding(CLOUD)
        await kube.create(CREDENTIALS_BINDINGS, NAMESPACE, for_admission(binding, CLOUD))
        good, bad = shoot(CLOUD), shoot(CLOUD)
        provider(bad)["infrastructureConfig"]["floatingPoolName"] = "nothing"
        words = r'infrastructureConfig\.floatingPoolName: Unsupported value: "nothing"'
        with pytest.raises(WindowboxError, match=words):
            await kube.create(SHOOTS, NAMESPACE, for_admission(bad, CLOUD))
        made = await kube.create(SHOOTS, NAMESPACE, for_admission(good, CLOUD))
        overlay = made.spec["networking"]["providerConfig"]["overlay"]
        assert overlay == {"enabled": False, "createPodRoutes": True}
        config = {"infrastructureConfig": {"networks": {"workers": "10.250.32.0/19"}}}
        with pytest.raises(WindowboxError, match="field is immutable"):
            await kube.merge(SHOOTS, NAMESPACE, made.name, {"spec": {"provider": config}})
        async with connected(garden.bus.access("operator")) as bus:

            async def recorded() -> list[str]:
                found = consumers.snapshot(bus, streams.REVIEWS, [subjects.review(">")], history=True)
                return [one.data.decode() async for one in found]

            async def complete() -> bool:
                return any("immutable" in text for text in await recorded())

            await eventually(complete)
            texts = await recorded()
    values = [*secret["data"].values(), *(from_base64(one).decode() for one in secret["data"].values())]
    assert [one for one in values if any(one in text for text in texts)] == []


@rule("ALI-X1", "AWS-X6")
async def test_services_of_a_shoot_are_changed_as_its_cloud_asks(hooks: Hooks) -> None:
    """The API server plays that of a Shoot."""
    settings, name = hooks.settings(), "gardener-extension-provider-local"
    settings = settings.model_copy(update={"clouds": CloudSettings(types=("alicloud", "aws"))})
    kube, made = hooks.kube, f"{name}-shoot"
    space = "services-of-clouds"
    with contextlib.suppress(WindowboxError):
        await kube.create(
            NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
        )

    async def configure(cloud: str) -> None:
        seed = await kube.get(CONFIGURATION, "", name)
        bundle = from_base64(seed.raw["webhooks"][0]["clientConfig"]["caBundle"])
        (body,) = configurations.for_shoot(settings.webhooks, bundle, cloud, ["IPv6"])
        await kube.remove(CONFIGURATION, "", made)
        await kube.create(CONFIGURATION, "", body)

    async def stored() -> Object:
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "web-"}, "spec": spec}
        return await kube.create(SERVICES, space, body)

    async def local() -> bool:
        return bool((await stored()).spec["externalTrafficPolicy"] == "Local")

    async def dual_stack() -> bool:
        return f"{AWS}ip-address-type" in (await stored()).annotations

    async with admitted(settings):
        try:
            await configure("alicloud")
            await eventually(local)
            found = await stored()
            assert found.spec["healthCheckNodePort"], "the API server chooses it after the webhook"
            patch = {"spec": {"externalTrafficPolicy": "Cluster", "healthCheckNodePort": None}}
            changed = await kube.merge(SERVICES, space, found.name, patch)
            fields = ("externalTrafficPolicy", "healthCheckNodePort")
            assert [changed.spec[one] for one in fields] == [found.spec[one] for one in fields]
            await configure("aws")
            await eventually(dual_stack)
            assert (await stored()).spec["externalTrafficPolicy"] == "Cluster"
        finally:
            await kube.remove(CONFIGURATION, "", made)
            for raw in (await kube.page(SERVICES, namespace=space)).items:
                await kube.remove(SERVICES, space, raw["metadata"]["name"])
