"""Clusters are asked which addresses are in use: when, and though their API servers answer as they like."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from bus import streams, subjects
from bus.clusters.clusters import clusters
from bus.clusters.registry import Member, Registry
from bus.messages import StatusIntent
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus, connected
from bus.workqueue.queue import Queue
from sandbox import files
from tests.api.watchers.test_answers import MIB, Answer, allow, little_memory
from tests.servers.ipam.stores import SMALL, range_of, service
from tests.support import loopback, webserver
from tests.support.apiservers import ApiServers, api_servers, kubeconfig
from tests.support.natsserver import NatsServer, ensured
from tests.support.running import eventually, running, soon
from windowbox.clients.kubernetes import kube
from windowbox.models.refs import RUNTIME, SECRETS, SERVICES, SecretKey
from windowbox.settings.bussettings import Access
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edgestate import POOL, EdgeState, States
from workers.loadbalancer.ipam.entries import Waiter
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service import adoption
from workers.loadbalancer.service.adoption import Adoption
from workers.loadbalancer.service.upkeep import AddressUpkeep

SETTINGS = LoadBalancerSettings()


def balancer(name: str, address: str, filler: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"},
        "spec": {
            "type": "LoadBalancer",
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}],
            "ipFamilies": ["IPv4"],
            "externalName": filler,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
    }


def page(*services: dict[str, Any], more: str = "") -> web.Response:
    return web.Response(
        body=orjson.dumps({"metadata": {"resourceVersion": "1", "continue": more}, "items": services})
    )


async def honest(_: web.Request) -> web.Response:
    return page(balancer("web", "10.0.0.20"))


async def without_end(_: web.Request) -> web.Response:
    return page(balancer("greedy", "10.0.0.21"), more="more")


async def empty_without_end(_: web.Request) -> web.Response:
    return page(more="more")


async def nested(_: web.Request) -> web.Response:
    service = balancer("deep", "10.0.0.22")
    service["spec"]["loadBalancerIP"] = "deep"
    text = page(service).body
    assert isinstance(text, bytes)
    return web.Response(
        body=text.replace(b'"loadBalancerIP":"deep"', b'"loadBalancerIP":' + b"[" * 1000 + b"]" * 1000)
    )


async def garbled(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b"[" * 2000 + b'"' + rb"\"" * MIB)


async def join(registry: Registry, bus: Bus, runtime: ApiServers, url: str, cluster: str) -> None:
    """Let a tenant's cluster join. The bus has listed it before, so that nobody waits for it for a minute."""
    text = base64.b64encode(kubeconfig(url, cluster).encode()).decode()
    metadata = {"name": cluster, "namespace": "garden"}
    runtime.put(RUNTIME, SECRETS, {"metadata": metadata, "data": {"kubeconfig": text}})
    await registry.join(Member(id=cluster, secret=SecretKey(namespace="garden", name=cluster)))
    await bus.publish(subjects.listed(cluster, SERVICES.id), b"", {})


@contextlib.asynccontextmanager
async def world(
    bus: Bus, path: Path, answers: dict[str, Answer], *, edge: bool = True
) -> AsyncIterator[tuple[Adoption, AddressStore]]:
    routes = [web.get(f"/{name}/api/v1/services", answer) for name, answer in answers.items()]
    async with api_servers() as apis, webserver.serving(*routes, tls=webserver.identity().tls) as url:
        files.write_private(path / "runtime", apis.kubeconfig(RUNTIME))
        registry, store = Registry(bus), AddressStore(bus, [range_of(SMALL)])
        states = States(Bucket(bus, streams.EDGES))
        for cluster in answers:
            await join(registry, bus, apis, url, cluster)
        async with (
            kube.from_file(path / "runtime") as runtime,
            clusters(runtime, registry, loopback.SETTINGS) as opened,
            running(registry.run(), store.run(), states.bucket.run()),
        ):
            await soon(states.bucket.complete.wait())
            if edge:
                await states.testify()
            yield Adoption(bus, store, opened, registry, states, SETTINGS), store


async def test_a_hostile_cluster_spoils_no_adoption_but_its_own(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, objects=500)
    hostile = {"endless": without_end, "empty": empty_without_end, "nested": nested, "garbled": garbled}
    async with world(bus, tmp_path, {**hostile, "honest": honest}) as (adoption, store):
        await soon(adoption.adopt())
        assert store.is_complete()
        assert store.has_address(service("web", "honest"))
        assert store.has_address(service("deep", "nested")), "its other fields are what they were"
        assert not store.has_address(service("greedy", "endless"))


async def test_a_bug_triggered_by_one_cluster_spares_the_others(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claim = adoption.claim

    def defective(cluster: str, *rest: Any) -> Any:
        if cluster == "unlucky":
            raise RecursionError("maximum recursion depth exceeded")
        return claim(cluster, *rest)

    monkeypatch.setattr(adoption, "claim", defective)
    async with world(bus, tmp_path, {"unlucky": honest, "honest": honest}) as (one, store):
        with caplog.at_level(logging.ERROR):
            await soon(one.adopt())
        assert store.has_address(service("web", "honest"))
    assert "addresses of cluster unlucky are not known, others may get them" in caplog.text


async def test_a_contest_of_clusters_waits_for_the_edge(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "_EDGE_PATIENCE", 0.1)
    async with world(bus, tmp_path, {"a-thief": honest, "victim": honest}, edge=False) as (one, store):
        adopting = asyncio.create_task(one.adopt())
        # The clusters are asked meanwhile, and the patience for claims without a contest ends.
        assert not (await asyncio.wait([adopting], timeout=1.5))[0]
        states, web = States(Bucket(bus, streams.EDGES)), service("web", "victim")
        await states.put(web, EdgeState(uid="web", digest="", since="", addresses=("10.0.0.20",)))
        await states.testify()
        await soon(adopting)
        assert store.has_address(web)
        assert not store.has_address(service("web", "a-thief"))


async def test_without_an_edge_our_reports_decide_a_contest(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_EDGE_PATIENCE", "_CONTEST_PATIENCE"):
        monkeypatch.setattr(adoption, name, 0.1)
    web = service("web", "victim")
    said = StatusIntent(uid="web", patch=balancer("web", "10.0.0.20")["status"])
    await bus.publish(subjects.intent(subjects.key(web)), said.encoded())
    async with world(bus, tmp_path, {"a-thief": honest, "victim": honest}, edge=False) as (one, store):
        await soon(one.adopt())
        assert store.has_address(web)
        assert not store.has_address(service("web", "a-thief"))


async def test_many_large_services_need_little_memory(bus: Bus, tmp_path: Path) -> None:
    numbers = itertools.count()

    async def many(request: web.Request) -> web.Response:
        limit, at = int(request.query["limit"]), next(numbers)
        if limit > 100:
            limit, at = 500, 0  # which is too large, and is asked for again
        one = balancer("web", "10.0.0.20", "x" * 25_000)
        found = [{**one, "metadata": {**one["metadata"], "name": f"s{at}-{n}"}} for n in range(limit)]
        return page(*found, more="more" if at < 16 else "")

    async with world(bus, tmp_path, {"large": many}) as (adoption, store):
        with little_memory(60 * MIB):
            await soon(adoption.adopt())
        assert store.is_complete()
    assert next(numbers) > 16, "2,000 Services of 25 kB each were listed"


async def test_the_claims_of_one_cluster_are_bounded(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(adoption, "_MOST_CLAIMS", 3)

    async def many(_: web.Request) -> web.Response:
        return page(*(balancer(f"web-{n}", f"10.0.0.{20 + n}") for n in range(8)))

    async with world(bus, tmp_path, {"many": many, "honest": honest}) as (one, store):
        await soon(one.adopt())
        kept = [n for n in range(8) if store.has_address(service(f"web-{n}", "many"))]
        assert store.is_complete()
    assert len(kept) <= 3
    assert "cluster many has more load balancers than 3" in caplog.text


async def test_a_renewed_lease_lists_no_cluster_again(nats: NatsServer, tmp_path: Path) -> None:
    async with connected(Access(nats.url)) as bus, api_servers() as apis:
        await ensured(bus)
        paths = {name: tmp_path / f"{name}.kubeconfig" for name in (RUNTIME, "shoot")}
        for name, path in paths.items():
            files.write_private(path, apis.kubeconfig(name))
        registry, store = Registry(bus), AddressStore(bus, [range_of(SMALL)])
        states, settings = States(Bucket(bus, streams.EDGES)), LoadBalancerSettings()
        await registry.join(Member(id="shoot", file=str(paths["shoot"])))
        async with (
            kube.from_file(paths[RUNTIME]) as runtime,
            clusters(runtime, registry, loopback.SETTINGS, paths) as opened,
            running(registry.run(), store.run(), states.bucket.run()),
        ):
            upkeep = AddressUpkeep(bus, opened, registry, store, states, settings, Queue(bus, POOL))
            async with running(upkeep.run()):
                await eventually(lambda: upkeep.adopted_in == store.bucket.readings)
            before = apis.listings.copy()
            assert before.keys() == paths.keys()
            await store.join_queue(service("waiting"), Waiter(uid="1", since=1.0, families=("IPv4",)))
            async with running(upkeep.run()):

                async def is_at_work() -> bool:
                    return bool(await bus.newest_of(streams.WORK, "work.>"))

                await eventually(is_at_work)
            assert apis.listings == before
            readings = store.bucket.readings
            await asyncio.to_thread(nats.restart)  # what it loses, another process may have written
            await eventually(lambda: store.bucket.readings > readings)
            async with running(upkeep.run()):
                await eventually(lambda: all(apis.listings[name] > before[name] for name in paths))
