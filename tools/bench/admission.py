"""Webhooks: the latency of requests for which the API server calls them, beside the same requests without."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import aiohttp
import orjson

from bus.leases import presence
from sandbox import processes
from sandbox.options import Options
from sandbox.processes import ProcessId
from sandbox.programs import binaries
from sandbox.servers import controlplane
from sandbox.servers.manifests import SYSTEM_NAMESPACE
from tools.bench import reviews
from tools.bench.client import Client, opened, translated, until
from tools.bench.report import Report, say, table
from tools.bench.requests import Answers, Latency, WebhookCalls, at_rate
from tools.bench.usage import Meter, running_first
from tools.bench.world import World, world
from windowbox.errors import Refused
from windowbox.models.refs import (
    CLUSTERS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    OPERATING_SYSTEM_CONFIGS,
    SECRETS,
    Resource,
)
from windowbox.models.webhooks import CONTROL_PLANE
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings.webhooksettings import WebhookSettings

SHOOT, PLAIN = "shoot--bench--asked", "bench-plain"
"""Namespaces: the API server calls webhooks for objects of the first only."""
_LABELS = {"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "local"}
_MUTATED = {"provider.extensions.gardener.cloud/mutated-by-controlplane-webhook": "true"}
_KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: true\n"
_PATIENCE = 120.0
_WARM_UP = 20
_SPREAD = 5.0
"""Seconds for which a new authority is trusted before it signs: two minutes by default."""
_CLIENTS = 10
_AFTER = 5.0
"""Seconds for which requests continue after a rotation: new connections come with time."""
_STARTING = 180.0
"""Seconds until an API server is ready, on a machine where several start."""
_SIZES = {"cpu": "2", "memory": "1Gi"}
_NODE = {"metadata": {"name": "one"}, "status": {"capacity": _SIZES, "allocatable": _SIZES}}
_STATUS = f"{NODES.path(name='one')}/status?dryRun=All"
_FIRST = ("kube-apiserver", "etcd", "admit-1", "nats-server")

_COLUMNS: Mapping[str, Callable[[Latency], str]] = {
    "requests": lambda one: one.what,
    "count": lambda one: str(one.count),
    "each second": lambda one: f"{one.rate:.0f}",
    "p50 ms": lambda one: f"{one.p50:.2f}",
    "p99 ms": lambda one: f"{one.p99:.2f}",
    "max ms": lambda one: f"{one.max:.1f}",
    "failed": lambda one: str(one.failed),
    "CPU of the webhook process, ms/request": lambda one: f"{one.cpu_ms:.2f}",
    "CPU of the API server, ms/request": lambda one: f"{one.server_cpu_ms:.2f}",
    "a webhook's answer, ms": lambda one: f"{one.called_ms:.2f}",
    "within 5 ms, %": lambda one: f"{one.called_short_percent:.0f}",
    "used by others, %": lambda one: f"{one.elsewhere_percent:.0f}",
}

Act = Callable[[int], Awaitable[None]]


async def measure(rate: float, seconds: float, servers: int, *, first: bool) -> Report:
    """Dry runs of creations at `rate` a second; then calls of the webhook `node` by clients and API servers.

    p50 and p99 are those of the client: of a creation, or, for "the answer alone", of the same review sent
    to the webhook without the API server. "A webhook's answer" is the mean that the API server measured.
    With `first`, measured processes run before other processes of the machine, apart from the many servers.
    """
    async with world("admit", Options(admits=1, webhook_spread=_SPREAD)) as here:
        await prepare(here)
        await here.quiet()
        found = list[Latency]()

        async def measured(title: str, act: Act, rate: float) -> None:
            say(f"{title}, {rate:g} a second")
            pids = [os.getpid(), *(here.pids()[name] for name in _FIRST)]
            with running_first(pids) if first else contextlib.nullcontext():
                found.append(await _measured(here, title, act, rate, seconds))

        for what, resource, body, share in (
            ("Deployment", DEPLOYMENTS, deployment(), 1.0),
            ("OperatingSystemConfig of 1 kB", OPERATING_SYSTEM_CONFIGS, _config(1), 1.0),
            # The API server takes few large objects a second.
            ("OperatingSystemConfig of 300 kB", OPERATING_SYSTEM_CONFIGS, _config(300), 0.05),
        ):
            plain, asked = (_creation(here, resource, each, body) for each in (PLAIN, SHOOT))
            await measured(f"{what}, plain", plain, rate * share)
            await measured(f"{what}, asked", asked, rate * share)
            review = reviews.review(resource, SHOOT, body)
            port = here.sandbox.state.ports["webhooks"]
            async with reviews.connected(port, CONTROL_PLANE.url_path, review) as ask:
                await measured(f"{what}, the answer alone", ask, rate * share)
            if resource == DEPLOYMENTS:
                async with reviews.connected(port, CONTROL_PLANE.url_path, review, anew=True) as ask:
                    await measured(f"{what}, the answer on a new connection", ask, rate / 2)
                say("creations during a rotation of certificates")
                found.append(await _during_rotation(here, rate, asked))
        async with _clients(here) as ask:
            await measured(f"node, asked directly by {_CLIENTS} clients", ask, rate)
        async with _reporting(here, servers) as report:
            found.append(
                await _measured(here, f"status of a node, {servers} API servers", report, rate, seconds)
            )
    return Report(found, [table("Webhooks", found, _COLUMNS)])


def _creation(here: World, resource: Resource, namespace: str, body: dict[str, Any]) -> Act:
    """Dry runs of the creation of this object."""
    path, data = f"{resource.path(namespace)}?dryRun=All", orjson.dumps(body)

    async def create(_: int) -> None:
        await here.client.request("POST", path, data)

    return create


async def prepare(here: World) -> None:
    """Create the namespaces and the Cluster, and wait until the API server calls webhooks."""
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

    async def called() -> bool:
        made = await here.client.request("POST", f"{DEPLOYMENTS.path(SHOOT)}?dryRun=All", deployment())
        return "injected-by" in made["spec"]["template"]["metadata"]["labels"]

    # No event says when the API server has read its webhook configurations.
    await until(called, _PATIENCE)


async def _measured(here: World, what: str, act: Act, rate: float, seconds: float) -> Latency:
    # Client and API server open their connections before the measurement.
    await at_rate(act, rate, _WARM_UP)
    before = await asyncio.to_thread(WebhookCalls.of, here.sandbox.api)
    meter = Meter(here.usage())
    answers = await at_rate(act, rate, int(rate * seconds))
    used = meter.read(here.usage())
    calls = (await asyncio.to_thread(WebhookCalls.of, here.sandbox.api)).since(before)
    found = answers.latency(what, used.seconds)
    count = found.count + found.failed
    return replace(
        found,
        cpu_ms=round(1000 * used.cpu["admit-1"] / count, 2),
        server_cpu_ms=round(1000 * used.cpu["kube-apiserver"] / count, 2),
        called_ms=round(calls.average_ms, 2),
        called_short_percent=round(calls.short_percent, 1),
        elsewhere_percent=used.elsewhere_percent,
    )


async def _during_rotation(here: World, rate: float, act: Act) -> Latency:
    """Have the webhooks' authority and certificate renewed while `act` is called."""

    async def shown() -> set[str]:
        """The Secrets of the certificates that processes show."""
        found = await presence.processes(here.bus)
        return {str(process["certificate"]) for process in found if "certificate" in process}

    async def renewed() -> bool:
        after = await shown()
        return bool(after) and not before & after

    # Far more requests than needed: they are cancelled when the rotation is over.
    answers, before, began = Answers(), await shown(), time.perf_counter()
    asking = asyncio.create_task(at_rate(act, rate, int(rate * _PATIENCE * 2), answers))
    try:
        # An authority that is 29 days old, and valid for one more day, is due for renewal.
        path, now = SECRETS.path(SYSTEM_NAMESPACE), int(time.time())
        labels = {"issued-at-time": str(now - 29 * 86400), "valid-until-time": str(now + 86400)}
        found = await here.client.request("GET", f"{path}?labelSelector=name%3Dca-provider-local-webhook")
        for secret in found["items"]:
            path = SECRETS.path(SYSTEM_NAMESPACE, secret["metadata"]["name"])
            await here.client.request("PATCH", path, {"metadata": {"labels": labels}})
        await until(renewed, _PATIENCE, 0.2)
        seconds = time.perf_counter() - began
        await asyncio.sleep(_AFTER)
    finally:
        asking.cancel()
        await asyncio.wait([asking])
    return answers.latency(
        f"Deployment, asked, during a rotation of {seconds:.0f} s", time.perf_counter() - began
    )


@contextlib.asynccontextmanager
async def _clients(here: World) -> AsyncIterator[Act]:
    """Clients of the webhook server in turn, each with connections of its own, like API servers of Shoots."""
    url = f"https://127.0.0.1:{here.sandbox.state.ports['webhooks']}/node?timeout=5s"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = {
        "uid": "bench",
        "kind": {"group": "", "version": "v1", "kind": "Node"},
        "resource": {"group": "", "version": "v1", "resource": "nodes"},
        "name": "one",
        "operation": "UPDATE",
        "object": {"apiVersion": "v1", "kind": "Node", "spec": {}, **_NODE},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body, headers = orjson.dumps(review), {"Content-Type": "application/json"}
    async with contextlib.AsyncExitStack() as stack:
        sessions = list[aiohttp.ClientSession]()
        for _ in range(_CLIENTS):
            connector = aiohttp.TCPConnector(ssl=context, limit=0)
            sessions.append(await stack.enter_async_context(aiohttp.ClientSession(connector=connector)))

        async def ask(number: int) -> None:
            with translated("node"):
                async with sessions[number % _CLIENTS].post(url, data=body, headers=headers) as answer:
                    review = orjson.loads(await answer.read())
            if not review["response"].get("patch"):
                raise Refused("the webhook has not changed the node")

        yield ask


@contextlib.asynccontextmanager
async def _reporting(here: World, count: int) -> AsyncIterator[Act]:
    """A function that reports the status of a node as its kubelet does, to `count` API servers in turn."""
    # The configuration that a ControlPlane writes for a Shoot, with the authorities of the sandbox's own one.
    resource = configurations.RESOURCES["MutatingWebhookConfiguration"]
    name = configurations.names(WebhookSettings()).prefixed
    found = await here.client.request("GET", resource.path(name=name))
    url = f"127.0.0.1:{here.sandbox.state.ports['webhooks']}"
    (configuration,) = configurations.for_shoot(WebhookSettings(mode="url", url=url), b"")
    for entry in configuration["webhooks"]:
        entry["clientConfig"]["caBundle"] = str(found["webhooks"][0]["clientConfig"]["caBundle"])
    async with contextlib.AsyncExitStack() as stack:
        servers = list[Client]()
        for number in range(count):
            say(f"API server {number + 1} of {count}")
            folder, port = here.sandbox.folder, processes.free_port()
            identity, etcd = controlplane.identities(folder / "pki"), here.sandbox.state.ports["etcd"]
            # The servers share the sandbox's etcd, each with a prefix of its own.
            prefix, program = f"--etcd-prefix=/shoot-{number}", binaries.find("kube-apiserver")
            child = controlplane.apiserver(program, identity, port, etcd, [prefix])
            log = folder / "logs" / f"shoot-{number}.log"
            process = processes.start(child.argv, log, env=dict(child.env))
            stack.callback(processes.end, ProcessId(process.pid, processes.started(process.pid) or ""))
            api = controlplane.api(identity, port)
            servers.append(await stack.enter_async_context(opened(api)))
            await until(partial(asyncio.to_thread, api.ready), _STARTING, 0.2)
            # Servers that start together on few CPUs refuse requests, or answer late, for a while.
            for path, manifest in ((NODES.path(), _NODE), (resource.path(), configuration)):
                post = partial(servers[-1].request, "POST", path, manifest, accepted=(201, 409))
                await until(post, _STARTING, 0.5)
            # No event says when the API server has read its webhook configurations.
            await until(partial(_changed_by_webhook, servers[-1]), _STARTING)

        async def report(number: int) -> None:
            if not await _changed_by_webhook(servers[number % count]):
                raise Refused("the webhook has not changed the node")

        yield report


async def _changed_by_webhook(server: Client) -> bool:
    made = await server.request("PATCH", _STATUS, {"status": {"capacity": {"cpu": "2"}}})
    return bool(made["status"]["capacity"]["cpu"] == "100")


def deployment() -> dict[str, Any]:
    """A Deployment that a webhook changes."""
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

    def file(path: str, content: bytes) -> dict[str, Any]:
        data = base64.b64encode(content).decode()
        return {"path": path, "content": {"inline": {"encoding": "b64", "data": data}}}

    files = [file("/var/lib/kubelet/config/kubelet", _KUBELET.encode())]
    files += [file(f"/opt/file-{number}", b"x" * 7300) for number in range(kilobytes // 10)]
    unit = {"name": "kubelet.service", "content": "[Unit]\nDescription=kubelet\n[Service]\nRestart=always"}
    return {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "OperatingSystemConfig",
        "metadata": {"name": "one", "labels": _MUTATED},
        "spec": {"type": "elsewhere", "purpose": "reconcile", "units": [unit], "files": files},
    }
