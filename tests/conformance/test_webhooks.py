"""Our webhooks answer as those of Gardener's own provider-local do, also for objects that nobody expects."""

from __future__ import annotations

import base64
import contextlib
import copy
import dataclasses
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml

from bus.transport.connection import connected
from sandbox.servers.apiserver import ApiServer
from tests.support import providerlocal, servers
from tests.support.admission import NAMESPACE, Seed, admitted, settings_for
from tests.support.admissionexamples import DRIVER, Example, examples
from tests.support.admitted import decided
from tests.support.natsserver import ensured
from tests.support.reviews import changed, mutated
from tests.support.roles import RoleServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from webhooks import answering
from webhooks.answering import Answer
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Refused
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, SECRETS

NEITHER = ("/dnsconfig", "/calico-self-hosted-shoot", "/webhooks/")
"""Of former versions, of self-hosted Shoots, and of a garden, which `test_admission.py` asks about."""
IMAGES = {DRIVER: f"{DRIVER}:v0.0.0"}
"""As the program has it built in."""
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VARIANTS = 25
ALWAYS_CRASHES = "WA-27"
"""A Node without capacity."""
CRASHES = ("panic: ", "could not decode ")
"""With what it denies what API servers refuse before they ask: numbers that are none, missing templates."""


def asked() -> list[Example]:
    return [one for one in examples() if not one.fields["path"].startswith(NEITHER) and not one.denied]


@pytest.fixture(scope="module")
def theirs(plane: ControlPlane, defined: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers.need(providerlocal.PROGRAM)
    [configured] = [one.context.settings for one in asked() if one.fields.get("settings")]
    folder = tmp_path_factory.mktemp("webhooks")
    with providerlocal.webhooks(folder, plane.kubeconfig, configured.prometheus) as url:
        yield url
    # Nobody answers the API server any more.
    with contextlib.suppress(Refused):
        plane.api.request("DELETE", f"{_CONFIGURATIONS}/gardener-extension-provider-local").close()


@pytest.mark.parametrize("example", [pytest.param(one, id=one.name) for one in asked()])
async def test_any_object_is_answered_as_gardener_answers_it(
    theirs: str, plane: ControlPlane, example: Example
) -> None:
    if found := example.fields.get("found"):
        _apply(plane.api, found)
    url, compared = theirs + example.fields["path"], 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http:
        for review in _variants(example.review(), random.Random(example.name)):
            async with http.post(url, json=review) as answer:
                reported = orjson.loads(await answer.read())["response"]
            if reported["allowed"] or not reported["status"]["message"].startswith(CRASHES):
                compared += 1
                _check(review["request"]["object"], reported, _ours(example, review))
    assert compared > VARIANTS / 4 or example.name == ALWAYS_CRASHES


@rule("WW-47")
@pytest.mark.parametrize("field", ["files", "units"])
async def test_a_stored_entry_has_to_be_readable_only_where_it_is_replaced(
    theirs: str, plane: ControlPlane, field: str
) -> None:
    [example] = [one for one in asked() if one.name == "WA-1"]
    _apply(plane.api, example.fields["found"])
    review = example.review()
    object = review["request"]["object"]
    unreadable = copy.deepcopy(object)
    for file in unreadable["spec"]["files"]:
        file["content"] = {"inline": {"encoding": "", "data": "a: ["}}
    for unit in unreadable["spec"]["units"]:
        unit["content"] = "[A]\nB"
    without = {**object, "spec": {**object["spec"], field: []}}
    other = "units" if field == "files" else "files"
    unreadable["spec"][other] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http:
        for new, allowed in ((object, False), (without, True)):
            update = {**review["request"], "operation": "UPDATE", "object": new, "oldObject": unreadable}
            async with http.post(
                theirs + example.fields["path"], json={**review, "request": update}
            ) as answer:
                reported = orjson.loads(await answer.read())["response"]
            ours = _ours(example, {**review, "request": update})
            assert (reported["allowed"], ours.allowed) == (allowed, allowed), (reported, ours)


def _check(object: Any, reported: Mapping[str, Any], ours: Answer) -> None:
    assert (ours.code == 200) == reported["allowed"], (object, reported, ours)
    if not reported["allowed"]:
        return
    mine = changed(object, ours)
    # A patch of theirs may lead nowhere in the object, since it is one of what they have filled in.
    with contextlib.suppress(KeyError, IndexError):
        others = mutated(object, dict(reported))
        assert mine == others or _edited(mine) == _edited(others)


def _edited(object: Any) -> Any:
    """The object with only the edited values of configurations, since Gardener rewrites the other fields."""
    if isinstance(object, dict):
        return {name: _edited(value) for name, value in object.items()}
    if isinstance(object, list):
        return [_edited(value) for value in object]
    try:
        text = object if "\n" in object else base64.b64decode(object, validate=True).decode()
        found = yaml.load(text, Loader=yaml.BaseLoader)
        if found["kind"] in ("KubeletConfiguration", "KubeProxyConfiguration"):
            conntrack = found.get("conntrack", {}).get("maxPerCore")
            return found["apiVersion"], found["kind"], found.get("failSwapOn"), conntrack
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        pass
    return object


def _ours(example: Example, review: dict[str, Any]) -> Answer:
    asked = answering.read(example.webhook, orjson.dumps(review))
    if isinstance(asked, tuple):
        return asked[0]
    context = dataclasses.replace(example.context, images=IMAGES)
    return decided(example.webhook, asked.review, context, example.found)


def _variants(review: dict[str, Any], chance: random.Random) -> Iterator[dict[str, Any]]:
    """The review, and others of objects in which something is missing, empty, double or other than usual.

    One in three is about an update, where the stored object is so.
    """
    yield review
    places = list(_places(review["request"]["object"]))
    for number in range(VARIANTS):
        other = copy.deepcopy(review)
        if number % 3 == 0:
            other["request"] |= {
                "operation": "UPDATE",
                "oldObject": copy.deepcopy(review["request"]["object"]),
            }
        changed_in = other["request"]["oldObject" if number % 3 == 0 else "object"]
        parent, place = changed_in, chance.choice(places)
        for step in place[:-1]:
            parent = parent[step]
        _change(parent, place[-1], chance.randrange(3))
        yield other


def _places(inside: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of what can be changed: names and kinds have to fit to the request."""
    steps = (
        inside.items() if isinstance(inside, dict) else enumerate(inside) if isinstance(inside, list) else ()
    )
    for step, value in steps:
        place = (*before, step)
        if place[0] not in ("metadata", "kind", "apiVersion") or place[:2] == ("metadata", "labels"):
            yield place
        yield from _places(value, place)


def _change(parent: Any, step: Any, how: int) -> None:
    value = parent[step]
    match how:
        case 0:
            del parent[step]
        case 1:
            parent[step] = type(value)()
        case _ if isinstance(value, list):
            value += copy.deepcopy(value)
        case _ if isinstance(value, str):
            parent[step] = value * 2


def _apply(api: ApiServer, found: dict[str, Any]) -> None:
    """What their lookup finds: a Cluster with all that they expect of one."""
    assert found["kind"] == "Cluster"
    body = copy.deepcopy(found)
    for kind in ("seed", "cloudProfile", "shoot"):
        about = {"apiVersion": "core.gardener.cloud/v1beta1", "kind": kind[0].upper() + kind[1:]}
        body["spec"][kind] = about | body["spec"].get(kind, {})
    name = body["metadata"]["name"]
    with contextlib.suppress(Refused):
        api.request("DELETE", CLUSTERS.path("", name)).close()
    api.apply(CLUSTERS.path("", name), body)


@pytest.mark.long  # api/providers/test_secretsmanager.py adopts secrets of another program
@rule("WF-60", "WF-63")
async def test_authorities_stay_when_another_program_takes_over(
    plane: ControlPlane, roles: RoleServer, defined: None, tmp_path: Path
) -> None:
    async with connected(roles.access("operator")) as bus:
        await ensured(bus)
    async with kube.from_file(plane.kubeconfig) as api:
        seed = Seed(api)
        await seed.clear()
        shoot = await seed.shoot("shoot--hooks--takeover")
        with providerlocal.webhooks(tmp_path / "first", plane.kubeconfig, namespace=NAMESPACE):
            await seed.asked(shoot)
            left = await _authorities(api)
        async with admitted(settings_for(plane, roles)):
            await seed.asked(shoot)
            assert await _authorities(api) == left
        with providerlocal.webhooks(tmp_path / "second", plane.kubeconfig, namespace=NAMESPACE):
            await seed.asked(shoot)
            assert await _authorities(api) == left
        await seed.clear()


async def _authorities(api: Kube) -> dict[str, str]:
    """The uids of the Secrets that hold authorities, by name."""
    page = await api.page(SECRETS._replace(selector="name=ca-provider-local-webhook"), namespace=NAMESPACE)
    found = [Object(raw) for raw in page.items]
    assert found
    return {one.name: one.uid for one in found}
