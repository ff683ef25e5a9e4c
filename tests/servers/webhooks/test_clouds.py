"""Shoots of six clouds at the HTTPS server of webhooks, which looks other objects up in a garden."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.servers.webhooks.callers import Caller, asked
from tests.support import apiservers, cloudobjects, webserver
from tests.support.cloudobjects import NAMESPACE, provider, shoot
from webhooks import journal, server, table
from webhooks.lookups import Lookups
from webhooks.review import Context, Found, Lookup, Review
from windowbox.clients.kubernetes import kube
from windowbox.models.clouds import IN_GARDENS
from windowbox.models.refs import CLOUD_PROFILES, SECRETS
from windowbox.models.webhooks import Target

Get = Callable[[web.Request], Awaitable[web.Response]]
CLOUDS = [one.type for one in IN_GARDENS]
each_cloud = pytest.mark.parametrize("cloud", [pytest.param(one, id=f"ALL-3+{one}") for one in CLOUDS])


def _existing() -> dict[str, Any]:
    found = {}
    for cloud in CLOUDS:
        profile, binding = cloudobjects.one(cloud, "CloudProfile"), cloudobjects.credentials_binding(cloud)
        found[f"core.gardener.cloud/v1beta1/cloudprofiles/{cloud}"] = profile
        place = f"namespaces/{NAMESPACE}"
        found[f"security.gardener.cloud/v1alpha1/{place}/credentialsbindings/core-{cloud}"] = binding
        found[f"v1/{place}/secrets/core-{cloud}"] = cloudobjects.secret(cloud)
    return found


EXISTING = _existing()


async def _get(request: web.Request) -> web.Response:
    found = EXISTING.get(request.match_info["path"])
    return web.json_response(found or {"kind": "Status", "code": 404}, status=200 if found else 404)


@contextlib.asynccontextmanager
async def garden(folder: Path, get: Get) -> AsyncIterator[Lookups]:
    """Look-ups in a garden that answers so."""
    every = web.get("/one/{root:apis?}/{path:.+}", get)
    async with webserver.serving(every) as url:
        (folder / "kubeconfig").write_text(apiservers.kubeconfig(url, "one"))
        async with kube.from_file(folder / "kubeconfig") as opened:
            yield Lookups(opened, lambda: None, frozenset())


@contextlib.asynccontextmanager
async def admission(folder: Path, get: Get = _get) -> AsyncIterator[Caller]:
    """A server of webhooks beside it."""
    async with garden(folder, get) as lookups, asked(folder, lookups.look) as caller:
        yield caller


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers need no time to connect elsewhere."""
    monkeypatch.setattr(server, "_GRACE", 0.01)


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    async with admission(tmp_path) as made:
        yield made


@each_cloud
async def test_a_good_shoot_is_changed_and_allowed_and_a_bad_one_denied(caller: Caller, cloud: str) -> None:
    given = shoot(cloud)
    given["spec"]["networking"]["type"] = "cilium"  # of calico, azure changes nothing
    _, answer = await caller.review(f"/webhooks/mutate/{cloud}", given)
    assert (answer["allowed"], answer["patchType"]) == (True, "JSONPatch")
    _, answer = await caller.review(f"/webhooks/validate/{cloud}", shoot(cloud))
    assert answer["allowed"], answer
    bad = shoot(cloud)
    bad["spec"]["cloudProfile"]["name"] = "nothing"
    provider(bad)["infrastructureConfig"]["networks"]["workers"] = "10.250.0.1"
    _, answer = await caller.review(f"/webhooks/validate/{cloud}", bad)
    assert (answer["allowed"], answer["status"]["code"]) == (False, 403)


async def test_a_lookup_that_fails_denies_in_the_words_of_the_api_server(tmp_path: Path) -> None:
    async def forbidden(_: web.Request) -> web.Response:
        status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "may not get it"}
        return web.json_response(status, status=403)

    async with admission(tmp_path, forbidden) as caller:
        _, answer = await caller.review("/webhooks/validate/openstack", shoot("openstack"))
    assert answer["status"]["code"] == 403
    assert "may not get it" in answer["status"]["message"]


async def test_a_lookup_that_takes_too_long_is_no_decision(tmp_path: Path) -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with admission(tmp_path, never) as caller:
        status, answer = await caller.review("/webhooks/validate/aws", shoot("aws"), seconds=1)
    assert status == 504 or "the API is too slow" in answer["status"]["message"]


async def test_a_webhook_that_wants_ever_more_objects_is_ended(tmp_path: Path) -> None:
    def wants(_: Review, context: Context) -> None:
        context.looked_up(Lookup(SECRETS, NAMESPACE, f"one-{len(context.objects)}"))

    async def found(wanted: Lookup, _: float) -> Found:
        return Found({"metadata": {"name": wanted.name}})

    async with asked(tmp_path, found, replace(table.WEBHOOKS["aws.validator"], act=wants)) as caller:
        _, answer = await caller.review("/webhooks/validate/aws", shoot("aws"))
    assert (answer["allowed"], answer["status"]["code"]) == (False, 500)


async def test_small_shoots_do_not_wait_for_large_ones(tmp_path: Path) -> None:
    threads = set()

    def waits(review: Review, _: Context) -> None:
        threads.add(threading.current_thread())
        if review.name == "large":
            made.released.wait()

    webhook = replace(table.WEBHOOKS["aws.validator"], act=waits)
    async with garden(tmp_path, _get) as lookups, asked(tmp_path, lookups.look, webhook) as made:
        large = shoot("aws")
        large["metadata"] = {"name": "large", "annotations": {"long": "x" * 100_000}}
        late = asyncio.create_task(made.review("/webhooks/validate/aws", large, seconds=30))
        while not made.server._bulkheads[Target.GARDEN].thread._threads:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # no event shows that the thread has begun
        _, answer = await made.review("/webhooks/validate/aws", shoot("aws"), seconds=30)
        assert (answer["allowed"], late.done()) == (True, False)
        made.released.set()
        _, answer = await late
        assert answer["allowed"]
    assert len(threads - {threading.main_thread()}) == 2  # neither holds the event loop


async def test_a_profile_that_has_not_changed_is_the_one_that_is_known(tmp_path: Path) -> None:
    version = 0

    async def get(request: web.Request) -> web.Response:
        metadata = {"name": request.match_info["path"], "uid": "u", "resourceVersion": str(version)}
        return web.json_response({"metadata": metadata})

    profiles = [Lookup(CLOUD_PROFILES, "", f"p{i}") for i in range(9)]
    secret = Lookup(SECRETS, NAMESPACE, "one")
    async with garden(tmp_path, get) as lookups:

        async def found(wanted: Lookup) -> Any:
            return (await lookups.look(wanted, 30)).object

        first = await found(profiles[0])
        assert await found(profiles[0]) is first
        version = 1
        second = await found(profiles[0])
        assert second["metadata"]["resourceVersion"] == "1"
        for one in profiles[1:]:
            await found(one)
        assert await found(profiles[8]) is await found(profiles[8])
        assert await found(profiles[0]) is not second  # others took its place
        assert await found(secret) is not await found(secret)


async def test_values_of_secrets_are_in_no_log_no_record_and_no_answer(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret, path = cloudobjects.secret("openstack", password="S3cr3t-V4lue"), "/webhooks/validate/secrets"
    answers = [
        await caller.review("/webhooks/validate/openstack", shoot("openstack")),
        await caller.review(f"{path}/openstack", secret),
        await caller.review(f"{path}/openstack", {**secret, "data": {"password": "UzNjcjN0"}}),
    ]
    records = [journal.record(one, "here").encoded() for one in caller.notes.kept]
    assert len(records) == 3
    written = f"{answers}{records}{caplog.text}"
    stored = EXISTING[f"v1/namespaces/{NAMESPACE}/secrets/core-openstack"]
    data = [*stored["data"].values(), *secret["data"].values()]
    values = [*data, *(b64decode(one).decode() for one in data), "UzNjcjN0"]
    assert [one for one in values if one in written] == []


async def test_a_large_shoot_does_not_delay_others(caller: Caller) -> None:
    large = shoot("aws")
    zones = provider(large)["infrastructureConfig"]["networks"]["zones"]
    for i in range(3000):
        ranges = dict.fromkeys(("internal", "public", "workers"), "10.250.0.0/24")
        zones.append({"name": f"zone-{i}", **ranges})
    long = asyncio.create_task(caller.review("/webhooks/validate/aws", large, seconds=30))
    assert (await caller.review())[0] == 200
    _, answer = await long
    assert answer["status"]["code"] == 403
    assert len(answer["status"]["message"]) <= 4096
