"""Our admission in the garden decides as Gardener's own does, about objects that are drawn by lot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support import gardenobjects
from tests.support.admissionexamples import Example, examples
from tests.support.admitted import decided
from tests.support.gardenobjects import KINDS, Case, Change
from tests.support.reviews import changed, mutated
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from webhooks import answering, shapes
from webhooks.answering import Answer
from webhooks.review import Context, Found
from webhooks.table import WEBHOOKS

SEED, MANY, SOME = "garden", 1000, 100
PARENTS = gardenobjects.parents(SEED)
_PROFILES = "/apis/core.gardener.cloud/v1beta1/cloudprofiles"
_IN_STATUS = ("status", "cloudProfileSpec", "providerConfig")


@dataclass(frozen=True)
class Difference:
    """What Gardener's program says to a question, and ours say otherwise."""

    case: Case
    theirs: Mapping[str, Any]
    ours: Answer


@dataclass(frozen=True)
class Meant:
    """A difference that is to be."""

    why: str
    kinds: frozenset[str]
    """Where it appears at least."""
    is_one: Callable[[Difference], bool]


def _decides_nothing(found: Difference) -> bool:
    undecodable = found.theirs["status"]["code"] == 400 and found.case.change.how in ("type", "unknown")
    return undecodable and found.ours.allowed and _ours(found.case, found.case.without()).allowed


def _has_null_in_a_list(found: Difference) -> bool:
    return found.case.change.value == [None] and bool(found.theirs["allowed"]) and not found.ours.allowed


def _is_of_an_unknown_version(found: Difference) -> bool:
    return found.case.change.how == "version" and found.theirs["status"]["code"] == 400


def _lists_a_version_twice(found: Difference) -> bool:
    both = found.theirs["allowed"] and found.ours.allowed
    return bool(both) and _is_stored_alike(found, once=True)


MEANT = (
    Meant(
        "A field of a wrong type that decides nothing is not looked at: API servers have decoded objects "
        "before they ask, and only the types of fields that decide something are known here.",
        frozenset(KINDS) - {"CloudProfile"},
        _decides_nothing,
    ),
    Meant(
        "Null in a list is refused, which Gardener takes for an empty element: API servers send none, as "
        "they encode what they have decoded.",
        frozenset({"Secret", "CloudProfile", "status of a NamespacedCloudProfile"}),
        _has_null_in_a_list,
    ),
    Meant(
        "Versions of the API that Gardener's program does not know are served by its rules, which name none, "
        "and checked (AD-4); the program refuses them.",
        frozenset({"Shoot", "CloudProfile", "NamespacedCloudProfile"}),
        _is_of_an_unknown_version,
    ),
    Meant(
        "A version that an image lists twice is written once, the last one, which counts: Gardener's program "
        "does so only where it merges, so that a second call may change what the first has written (AD-14).",
        frozenset({"status of a NamespacedCloudProfile"}),
        _lists_a_version_twice,
    ),
)


@pytest.fixture(scope="module")
def parents(plane: ControlPlane, defined: None) -> None:
    for name, profile in PARENTS.items():
        plane.api.apply(f"{_PROFILES}/{name}", profile)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [SOME, pytest.param(MANY, marks=pytest.mark.long)])
async def test_objects_drawn_by_lot_are_decided_alike(
    of_garden: str, parents: None, kind: str, count: int
) -> None:
    cases = gardenobjects.cases(SEED, kind, count, PARENTS)
    found = [one async for one in _differences(of_garden, cases)]
    unmeant = [one for one in found if not any(meant.is_one(one) for meant in MEANT)]
    assert not unmeant, f"{len(unmeant)} of {count}, first: {_described(unmeant[0])}"
    gone = [meant.why for meant in MEANT if kind in meant.kinds and not any(map(meant.is_one, found))]
    assert not gone or count < MANY, "take out of the list what differs no more"


@rule("AD-41", "AD-42", "AD-43")
async def test_every_spelling_of_a_range_is_decided_alike(of_garden: str) -> None:
    found = [one async for one in _differences(of_garden, gardenobjects.ranges())]
    assert [one.case.review["request"]["object"]["spec"]["networking"]["nodes"] for one in found] == []


def of_contract() -> list[Example]:
    return [one for one in examples() if one.fields["path"].startswith("/webhooks/")]


@pytest.mark.parametrize("example", [pytest.param(one, id=one.name) for one in of_contract()])
async def test_examples_of_the_contract_are_decided_alike(of_garden: str, example: Example) -> None:
    case = Case(example.fields["path"], example.review(), "", Change("nothing"))
    assert [one async for one in _differences(of_garden, [case])] == []


async def _differences(url: str, cases: Iterable[Case]) -> AsyncIterator[Difference]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http:
        for case in cases:
            async with http.post(url + case.path, json=case.review) as answer:
                theirs = orjson.loads(await answer.read())["response"]
            found = Difference(case, theirs, _ours(case, case.review))
            if theirs["allowed"] != found.ours.allowed or (theirs["allowed"] and not _is_stored_alike(found)):
                yield found


def _ours(case: Case, review: Mapping[str, Any]) -> Answer:
    webhook = next(one for one in WEBHOOKS.values() if one.registration.url_path == case.path)
    asked = answering.read(webhook, orjson.dumps(review))
    if isinstance(asked, tuple):
        return asked[0]
    found = Found(PARENTS.get(case.parent), "not found", missing=case.parent not in PARENTS)
    return decided(webhook, asked.review, Context(), found)


def _is_stored_alike(found: Difference, *, once: bool = False) -> bool:
    """Whether the object is the same after both patches; with `once`, but for what is listed twice."""
    object = found.case.review["request"]["object"]
    theirs, ours = mutated(object, dict(found.theirs)), changed(object, found.ours)
    return bool(theirs == ours or _normal(theirs, once=once) == _normal(ours, once=once))


def _normal(object: Any, *, once: bool) -> Any:
    """The object with the images of its status in order, and without what is empty there."""
    config = shapes.part(object, *_IN_STATUS)
    if not config:
        return object
    images = {}
    for image in config.get("machineImages") or []:
        versions = [_without_empty(one) for one in image.get("versions") or []]
        if once:
            versions = [*{one.get("version"): one for one in versions}.values()]
        images[image.get("name")] = sorted(versions, key=_spelled)
    return shapes.put(object, {**config, "machineImages": images}, *_IN_STATUS)


def _spelled(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _without_empty(value: Any) -> Any:
    """Null, missing and empty lists are the same."""
    if isinstance(value, dict):
        return {name: _without_empty(one) for name, one in value.items() if one not in (None, [], {})}
    return [_without_empty(one) for one in value] if isinstance(value, list) else value


def _described(found: Difference) -> str:
    request, status = found.case.review["request"], found.theirs["status"]
    return (
        f"{found.case.change}\n{orjson.dumps(request['object']).decode()}\n"
        f"old: {orjson.dumps(request['oldObject']).decode()}\n"
        f"theirs: {found.theirs['allowed']} {status.get('message', '')[-300:]}\nours: {found.ours}"
    )
