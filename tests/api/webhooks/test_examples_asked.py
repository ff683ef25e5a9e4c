"""The contract's examples, as a real API server asks and with what it then stores."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.support import standins
from tests.support.admission import Seed, admitted, settings_for
from tests.support.admissionexamples import IMAGES, Example, examples
from tests.support.patching import patched
from tests.support.roles import RoleServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, WindowboxError
from windowbox.models.objects import Json, Object
from windowbox.models.refs import CLOUD_PROFILES, CLUSTERS, NAMESPACES, SERVICES, Resource

EXAMPLES = {one.name: one for one in examples()}
SHOOT, OTHER = "shoot--local--local", "shoot--local--other"
SERVER = "gardener-extension-provider-local-coredns"
LABELS = {
    "gardener.cloud/role": "shoot",
    "gardener.cloud/purpose": "kube-system",
    "shoot.gardener.cloud/provider": "local",
    "seed.gardener.cloud/provider": "local",
}
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
MARKED = {"provider.extensions.gardener.cloud/local": "true"}
OLD = {"version": "1.0.0", "image": "local/node:v1.0.0"}
TOUCH = {"metadata": {"annotations": {"touched": "1"}}}
NOT_ASKED = "WA-28"
"""No API server asks a webhook about a kind that its configuration does not name."""
BEFORE = ("WA-12", "WA-17", "WA-22", "WA-29")
"""Their objects are there before the webhooks are, and are updated."""
UPDATED = (*BEFORE, "WA-7", "WA-24")
"""The last two are about the object of the example before."""
ELSEWHERE = ("WA-22", "WA-29")
"""Their objects have the names of others."""
DENIED_FIRST = ("WA-25", "WA-26")
"""These are about a Cluster that is not there yet."""


def resource(example: Example) -> Resource:
    group, _, version = str(example.object["apiVersion"]).rpartition("/")
    namespaced = "namespace" in example.object["metadata"]
    return Resource(group, version, example.fields["resource"], example.object["kind"], namespaced=namespaced)


def place(example: Example) -> tuple[Resource, str, str]:
    metadata = example.object["metadata"]
    namespace = OTHER if example.name in ELSEWHERE else metadata.get("namespace", "")
    return resource(example), namespace, metadata["name"]


def given(object: Json) -> dict[str, Any]:
    """The object without what the API server decides."""
    decided = ("deletionTimestamp", "generation", "namespace")
    metadata = {name: value for name, value in object["metadata"].items() if name not in decided}
    return {**object, "metadata": metadata}


@pytest.fixture
def kinds(plane: ControlPlane) -> Iterator[None]:
    standins.define(plane.api)
    try:
        yield
    finally:
        standins.remove(plane.api)


@pytest_asyncio.fixture
async def kube(seed: Seed, kinds: None) -> AsyncIterator[Kube]:
    """The namespaces of the examples; nothing of the examples is left behind."""
    made = seed.kube
    before = (await made.get(NAMESPACES, "", "kube-system")).labels
    await made.merge(NAMESPACES, "", "kube-system", {"metadata": {"labels": LABELS}})
    for name in (SHOOT, OTHER, "garden", "garden-local", SERVER):
        labels = LABELS if name in (SHOOT, OTHER) else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        with contextlib.suppress(WindowboxError):
            await made.create(NAMESPACES, "", body)
        # Tests of kinds leave the namespaces of the contract's examples, without these labels.
        await made.merge(NAMESPACES, "", name, {"metadata": {"labels": labels}})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        with contextlib.suppress(WindowboxError):
            await made.create(ACCOUNTS, name, account)
    yield made
    await seed.clear()
    for example in EXAMPLES.values():
        with contextlib.suppress(Missing):
            await made.merge(*place(example), {"metadata": {"finalizers": None}})
        with contextlib.suppress(WindowboxError):
            await made.remove(*place(example), grace=0)
    for name in (SHOOT, "kube-system"):
        await made.remove(CLUSTERS, "", name)
    gone = {name: before.get(name) for name in LABELS}
    await made.merge(NAMESPACES, "", "kube-system", {"metadata": {"labels": gone}})


@pytest.fixture
def images(tmp_path: Path) -> Path:
    entries = [
        dict(zip(("name", "repository", "tag"), (name, *ref.rsplit(":", 1)), strict=True))
        for name, ref in IMAGES.items()
    ]
    file = tmp_path / "images.yaml"
    file.write_text(yaml.safe_dump({"images": entries}))
    return file


async def stored_before(kube: Kube) -> None:
    """Create the objects that are older than the webhooks."""
    for name in BEFORE:
        kind, namespace, _ = place(EXAMPLES[name])
        await kube.create(kind, namespace, given(EXAMPLES[name].object))
    dying = place(EXAMPLES["WA-22"])
    await kube.merge(*dying, {"metadata": {"finalizers": ["windowbox.test/held"]}})
    await kube.remove(*dying)
    server = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "coredns"},
        "spec": {"ports": [{"port": 53}], "ipFamilyPolicy": "RequireDualStack"},
    }
    with contextlib.suppress(WindowboxError):
        await kube.create(SERVICES, SERVER, server)


async def is_known(kube: Kube, example: Example) -> bool:
    """Whether the API server knows the configuration that this example needs."""
    try:
        made = await kube.create(*place(example)[:2], given(example.object))
    except WindowboxError as error:
        return example.denied != "" and example.denied in str(error)
    await kube.remove(*place(example))
    return not example.denied and contains(made.raw, wanted(example))


async def check(kube: Kube, example: Example, servers: list[str]) -> None:
    """Send the request of an example, and compare the stored object."""
    kind, namespace, _ = place(example)
    if example.denied:
        with pytest.raises(WindowboxError) as refused:
            await kube.create(kind, namespace, given(example.object))
        assert example.denied in str(refused.value), example.name
        return
    if example.name in UPDATED:
        made = await updated(kube, example)
    else:
        made = await kube.create(kind, namespace, given(example.object))
    expected = wanted(example)
    spec = expected.get("spec", {})
    for pod in (spec, spec.get("template", {}).get("spec", {})):
        if "dnsConfig" in pod:
            pod["dnsConfig"]["nameservers"] = servers  # the API server chose these
    assert contains(made.raw, expected), (example.name, made.raw, expected)
    for operation in example.patch:
        # The API server writes its defaults into the sidecar again.
        if operation["op"] == "remove" and example.name != "WA-24":
            assert not exists(made.raw, operation["path"]), example.name


async def check_parents(kube: Kube) -> None:
    """A NamespacedCloudProfile needs its parent, which the webhook looks up in the garden."""
    example = EXAMPLES["WA-17"]
    parent, (kind, namespace, _) = EXAMPLES["WA-21"], place(example)
    added = [{"name": "local", "versions": [{"version": "1.1.0"}]}]
    spec = {**example.object["spec"], "machineImages": added}
    body = {**given(example.object), "metadata": {"generateName": "other-", "labels": MARKED}, "spec": spec}
    with pytest.raises(WindowboxError, match=r'cloudprofiles\.core\.gardener\.cloud "local" not found'):
        await kube.create(kind, namespace, body)
    config = {**spec["providerConfig"], "machineImages": [{"name": "local", "versions": [OLD]}]}
    profile = {**parent.object["spec"], "providerConfig": config}
    await kube.create(CLOUD_PROFILES, "", {**given(parent.object), "spec": profile})
    made = await kube.create(kind, namespace, body)
    assert made.spec == spec  # only its status is changed
    await kube.remove(kind, namespace, made.name)


async def updated(kube: Kube, example: Example) -> Object:
    part = example.fields.get("subresource", "")
    if not part:
        return await kube.merge(*place(example), TOUCH)
    found = await kube.get(*place(example))
    status = dict(example.object["status"])
    if "observedGeneration" in status:
        status["observedGeneration"] = found.generation
    return await kube.merge(*place(example), {"status": status}, part=part)


def wanted(example: Example) -> Any:
    """The object as it is to be stored, without what the API server decides."""
    made = given(patched(example.object, example.patch))
    made.get("status", {}).pop("observedGeneration", None)
    return made


def contains(found: Any, expected: Any) -> bool:
    """Whether all that is expected is there; nothing and empty are the same."""
    if not expected:
        return expected is False or expected == found or not found or isinstance(expected, dict)
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(contains(found.get(k), v) for k, v in expected.items())
    if isinstance(expected, list):
        same_length = isinstance(found, list) and len(found) == len(expected)
        return same_length and all(map(contains, found, expected))
    return bool(found == expected)


def exists(found: Any, path: str) -> bool:
    try:
        for token in path.split("/")[1:]:
            found = found[int(token) if isinstance(found, list) else token.replace("~1", "/")]
    except (KeyError, IndexError):
        return False
    return True


@rule(*(name for name in EXAMPLES if name != NOT_ASKED), "WW-80", "AD-3", "AD-30", "WF-12")
async def test_an_api_server_stores_what_the_webhooks_say(
    plane: ControlPlane, bus_server: RoleServer, kube: Kube, images: Path
) -> None:
    await stored_before(kube)
    prometheus = EXAMPLES["WA-10"].fields["settings"]["prometheus"]
    seed = settings_for(plane, bus_server, self_hosted=True, dnsconfig=True, prometheus=prometheus)
    seed = seed.model_copy(update={"images": seed.images.model_copy(update={"overwrite": images})})
    garden = settings_for(plane, bus_server, role="admission")
    servers = (await kube.get(SERVICES, SERVER, "coredns")).spec["clusterIPs"]
    async with admitted(seed), admitted(garden, garden=True):
        for name in ("WA-5", "WA-16", "WA-19"):
            await eventually(partial(is_known, kube, EXAMPLES[name]), 60)
        for name in DENIED_FIRST:
            await check(kube, EXAMPLES[name], servers)
        for name in ("WA-9", "WA-13"):
            cluster = EXAMPLES[name].fields["found"]
            spec = {"cloudProfile": {}, **cluster["spec"]}
            await kube.create(CLUSTERS, "", {**cluster, "spec": spec})
        for name, example in EXAMPLES.items():
            if name not in (*DENIED_FIRST, NOT_ASKED):
                await check(kube, example, servers)
        await check_parents(kube)
