"""Webhooks that a real API server asks, beside requests about which it asks nobody."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import orjson

from sandbox.options import Options
from tools.bench import admission_rotation, admission_servers, precedence, webhookcalls
from tools.bench.client import translated
from tools.bench.requests import Latency, at_rate, latency
from tools.bench.usage import machine
from tools.bench.world import World, world
from windowbox.errors import Refused
from windowbox.models.refs import CLUSTERS, DEPLOYMENTS, NAMESPACES, OPERATING_SYSTEM_CONFIGS, Resource

SHOOT, PLAIN = "shoot--bench--asked", "bench-plain"
_LABELS = {"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "local"}
_MUTATED = {"provider.extensions.gardener.cloud/mutated-by-controlplane-webhook": "true"}
_KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: true\n"
_PATIENCE = 60.0
_WARM_UP = 20
_SPREAD = 5.0


_MEASURED = ("kube-apiserver", "etcd", "admit-1", "nats-server")


async def run(
    rate: float, seconds: float, servers: int, first: bool, say: Callable[[str], None]
) -> list[Latency]:
    """Dry runs of creations, so many a second; then the webhook `node`, asked by clients and API servers.

    With `first`, what is measured runs before other processes of the machine, apart from the many servers.
    """
    say("starting a sandbox")
    async with world("admit", Options(admits=1, webhook_spread=_SPREAD)) as here:
        await prepare(here)
        await here.quiet()
        found = []
        for what, resource, namespace, body, share in _sorts():
            say(f"{what}, {rate * share:g} a second")
            path = f"{resource.path(namespace)}?dryRun=All"

            async def create(number: int, path: str = path, body: bytes = body) -> None:
                await here.client.request("POST", path, body)

            with _precedence(here) if first else contextlib.nullcontext():
                found.append(await _measured(here, what, create, rate * share, seconds))
            if (what, namespace) == ("Deployment, asked", SHOOT):
                say("the same during a rotation of certificates")
                found.append(await admission_rotation.rotated(here, rate, create))
        say("ten clients of the webhook `node`")
        async with _clients(here, 10) as ask:
            with _precedence(here) if first else contextlib.nullcontext():
                found.append(await _measured(here, "node, asked directly by 10 clients", ask, rate, seconds))
        async with admission_servers.asking(here, servers, say) as report:
            what = f"status of a node, {servers} API servers"
            found.append(await _measured(here, what, report, rate, seconds))
        return found


def _precedence(here: World) -> contextlib.AbstractContextManager[None]:
    children = here.sandbox.state.children
    return precedence.given([os.getpid(), *(children[name].pid or 0 for name in _MEASURED)])


def _sorts() -> list[tuple[str, Resource, str, bytes, float]]:
    """What is created, where, and how often: of large objects, an API server takes few.

    In one namespace webhooks are asked, in the other nobody is.
    """
    small, large = _config(1), _config(300)
    return [
        (
            f"{what}, {'asked' if namespace == SHOOT else 'plain'}",
            resource,
            namespace,
            orjson.dumps(body),
            share,
        )
        for what, resource, body, share in (
            ("Deployment", DEPLOYMENTS, deployment(), 1.0),
            ("OperatingSystemConfig of 1 kB", OPERATING_SYSTEM_CONFIGS, small, 1.0),
            ("OperatingSystemConfig of 300 kB", OPERATING_SYSTEM_CONFIGS, large, 0.05),
        )
        for namespace in (PLAIN, SHOOT)
    ]


async def _measured(
    here: World, what: str, act: Callable[[int], Awaitable[None]], rate: float, seconds: float
) -> Latency:
    await at_rate(act, rate, _WARM_UP)
    called = await asyncio.to_thread(webhookcalls.of, here.sandbox.api)
    before, others, started = here.usage(), machine(), time.perf_counter()
    asked = await at_rate(act, rate, int(rate * seconds))
    took, used = time.perf_counter() - started, here.usage()
    calls = (await asyncio.to_thread(webhookcalls.of, here.sandbox.api)).since(called)
    cpu = {name: used[name].cpu - before[name].cpu for name in used}
    own = sum(cpu.values())
    found = latency(what, asked, took)
    count = found.count + found.failed
    return replace(
        found,
        cpu_ms=round(1000 * cpu["admit-1"] / count, 2),
        server_cpu_ms=round(1000 * cpu["kube-apiserver"] / count, 2),
        called_ms=round(calls.average_ms, 2),
        called_short_percent=round(calls.short_percent, 1),
        elsewhere_percent=round(100 * (machine() - others - own) / took / (os.cpu_count() or 1), 1),
    )


async def prepare(here: World) -> None:
    """The namespaces and the Cluster; then wait until the API server asks."""
    for name, labels in ((SHOOT, _LABELS), (PLAIN, {})):
        await here.client.request("POST", NAMESPACES.path(), {"metadata": {"name": name, "labels": labels}})
    shoot = {"spec": {"kubernetes": {"version": "1.33.2"}, "provider": {"type": "local", "workers": []}}}
    cluster = {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": SHOOT},
        "spec": {"cloudProfile": {}, "seed": {}, "shoot": shoot},
    }
    await here.client.request("POST", CLUSTERS.path(), cluster)
    async with asyncio.timeout(_PATIENCE):
        # The API server does not tell when it has read its configurations.
        while not await _asked(here):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def _asked(here: World) -> bool:
    path = f"{DEPLOYMENTS.path(SHOOT)}?dryRun=All"
    with contextlib.suppress(Refused):
        made = await here.client.request("POST", path, deployment())
        return "injected-by" in made["spec"]["template"]["metadata"]["labels"]
    return False


@contextlib.asynccontextmanager
async def _clients(here: World, count: int) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """So many clients of the webhook server, each with connections of its own, as API servers of Shoots."""
    url = f"https://127.0.0.1:{here.sandbox.state.ports['webhooks']}/node?timeout=5s"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    body, headers = orjson.dumps(_node_review()), {"Content-Type": "application/json"}
    async with contextlib.AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0))
            )
            for _ in range(count)
        ]

        async def ask(number: int) -> None:
            with translated("node"):
                async with sessions[number % count].post(url, data=body, headers=headers) as answer:
                    told = orjson.loads(await answer.read())
            if not told["response"].get("patch"):
                raise Refused("the webhook has not changed the node")

        yield ask


def deployment() -> dict[str, Any]:
    labels = {"app": "kubernetes", "role": "scheduler"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "one", "image": "none"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kube-scheduler", "labels": _MUTATED},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def _config(kilobytes: int) -> dict[str, Any]:
    """An OperatingSystemConfig of about that size."""
    files = [_file("/var/lib/kubelet/config/kubelet", _KUBELET.encode())]
    files += [_file(f"/opt/file-{number}", b"x" * 7300) for number in range(kilobytes // 10)]
    unit = {"name": "kubelet.service", "content": "[Unit]\nDescription=kubelet\n[Service]\nRestart=always"}
    return {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "OperatingSystemConfig",
        "metadata": {"name": "one", "labels": _MUTATED},
        "spec": {"type": "elsewhere", "purpose": "reconcile", "units": [unit], "files": files},
    }


def _file(path: str, content: bytes) -> dict[str, Any]:
    return {
        "path": path,
        "content": {"inline": {"encoding": "b64", "data": base64.b64encode(content).decode()}},
    }


def _node_review() -> dict[str, Any]:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "one"},
        "spec": {},
        "status": {"capacity": {"cpu": "2", "memory": "1Gi"}, "allocatable": {"cpu": "2", "memory": "1Gi"}},
    }
    kind, resource = {"group": "", "version": "v1"}, {"group": "", "version": "v1", "resource": "nodes"}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "bench",
            "kind": {**kind, "kind": "Node"},
            "resource": resource,
            "name": "one",
            "operation": "UPDATE",
            "object": node,
        },
    }
