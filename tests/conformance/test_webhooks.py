"""Our webhooks answer as those of Gardener's own provider-local do, also for objects that nobody expects."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import random
from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support import providerlocal, servers, standins
from tests.support.admissionexamples import DRIVER, Example, examples
from tests.support.reviews import changed, mutated
from tests.support.servers import ControlPlane
from webhooks import answering
from webhooks.answering import Answer
from windowbox.errors import Refused
from windowbox.models.refs import CLUSTERS
from windowbox.sandbox.apiserver import ApiServer

NEITHER = ("/dnsconfig", "/calico-self-hosted-shoot", "/webhooks/")
"""Of former versions, of self-hosted Shoots, and of a garden."""
IMAGES = {DRIVER: f"{DRIVER}:v0.0.0"}
"""As the program has it built in."""
VARIANTS = 25
ALWAYS_CRASHES = "WA-27"
"""A Node without capacity."""
CRASHES = ("panic: ", "could not decode ")
"""With what it denies what API servers refuse before they ask: numbers that are none, missing templates."""


def asked() -> list[Example]:
    return [one for one in examples() if not one.fields["path"].startswith(NEITHER) and not one.denied]


@pytest.fixture(scope="module")
def theirs(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := servers.missing(providerlocal.PROGRAM):
        pytest.skip(reason)
    standins.define(plane.api)
    [configured] = [one.context.settings for one in asked() if one.fields.get("settings")]
    folder = tmp_path_factory.mktemp("webhooks")
    with providerlocal.webhooks(folder, plane.kubeconfig, configured.prometheus) as url:
        yield url
    standins.remove(plane.api)


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
                told = orjson.loads(await answer.read())["response"]
            if told["allowed"] or not told["status"]["message"].startswith(CRASHES):
                compared += 1
                _check(review["request"]["object"], told, _ours(example, review))
    assert compared > VARIANTS / 4 or example.name == ALWAYS_CRASHES


def _check(object: Any, told: Mapping[str, Any], ours: Answer) -> None:
    assert (ours.code == 200) == told["allowed"], (object, told, ours)
    if not told["allowed"]:
        return
    mine = changed(object, ours)
    # A patch of theirs may lead nowhere in the object, since it is one of what they have filled in.
    with contextlib.suppress(KeyError, IndexError):
        assert mine == mutated(object, dict(told))


def _ours(example: Example, review: dict[str, Any]) -> Answer:
    asked = answering.read(example.webhook, orjson.dumps(review))
    if isinstance(asked, tuple):
        return asked[0]
    context = dataclasses.replace(example.context, images=IMAGES)
    return answering.decide(example.webhook, asked.review, context)


def _variants(review: dict[str, Any], chance: random.Random) -> Iterator[dict[str, Any]]:
    """The review, and others of objects in which something is missing, empty, double or other than usual."""
    yield review
    places = list(_places(review["request"]["object"]))
    for _ in range(VARIANTS):
        other = copy.deepcopy(review)
        parent, place = other["request"]["object"], chance.choice(places)
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
