"""Hostile tenants: namespaces of Shoots, each with a Cluster and a Secret with a provider kubeconfig."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import yaml

from tests.support.hostile import manifests, values
from tools.bench import shoots
from tools.bench.client import Client
from windowbox.errors import Refused
from windowbox.models.refs import CLUSTERS, NAMESPACES, SECRETS

_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
_SERVERS = (
    "https://169.254.169.254", "https://[::1", "http://127.0.0.1:1", "https://127.0.0.1:99999",
    "https://ä.example", "file:///etc/passwd", "https://user:password@127.0.0.1:1", "", "x" * 70_000,
    "https://127.0.0.1:1/" + "a/" * 2000, "https://0x7f.1:1", "https://127.0.0.1:1?x#y",
    "https://localhost.:1", "//127.0.0.1:1", "https://" + "a" * 300,
)  # fmt: skip


async def prepare(client: Client, count: int, kubeconfig: str, silent: int, seed: int) -> list[str]:
    """Create `count` namespaces of Shoots with their objects. Returns their names."""
    found = names(count)
    await client.request("POST", NAMESPACES.path(), {"metadata": {"name": "garden"}}, accepted=(201, 409))
    await client.request("POST", SECRETS.path("garden"), {"metadata": {"name": "backup-demo"}})
    for number, name in enumerate(found):
        chance = Random(f"tenant-{seed}-{number}")
        await client.request("POST", NAMESPACES.path(), _namespace(name), accepted=(201, 409))
        secret = _secret(name, _kubeconfig(number, kubeconfig, silent, chance))
        with contextlib.suppress(Refused):
            await client.request("POST", SECRETS.path(name), secret)
        await _cluster(client, name, number, chance)
    return found


def names(count: int) -> list[str]:
    """The namespaces of so many tenants."""
    return [_named(number) for number in range(count)]


async def good_cluster(client: Client, name: str) -> None:
    """Create a valid Cluster."""
    await client.request("POST", CLUSTERS.path(), shoots.cluster(name))


@contextlib.asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """A port that takes connections and never answers."""
    over = asyncio.Event()

    async def never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        over.set()
        server.close()


def _named(number: int) -> str:
    """Some are as long as a namespace's name may be."""
    name = f"shoot--hostile--{number}"
    return name if number % 5 else f"{name}-{'x' * 63}"[:63]


def _namespace(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"gardener.cloud/role": "shoot"}}}


def _secret(namespace: str, kubeconfig: bytes) -> dict[str, Any]:
    data = {"kubeconfig": base64.b64encode(kubeconfig).decode()}
    return {"metadata": {"name": shoots.SECRET, "namespace": namespace}, "data": data}


def _kubeconfig(number: int, good: str, silent: int, chance: Random) -> bytes:
    """Every other kubeconfig is valid, so that its tenant gets past the provider cluster."""
    if number % 2 == 0:
        return good.encode()
    content = yaml.safe_load(good)
    match number // 2 % 8:
        case 0:
            content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{silent}"
        case 1:
            content["clusters"][0]["cluster"]["server"] = chance.choice(_SERVERS)
        case 2:
            content["users"][0]["user"]["exec"] = {"command": "/bin/false", "apiVersion": "x"}
        case 3:
            return chance.choice(
                (b"\xff\0" * 1000, b"", b"[" * 50_000, _BOMB.encode(), b"a: " + b"x" * 900_000)
            )
        case 4:
            content["clusters"][0]["cluster"]["certificate-authority"] = "/etc/passwd"
        case 5:
            content["clusters"][0]["cluster"]["proxy-url"] = f"http://127.0.0.1:{silent}"
        case _:
            manifests.mutated(content, chance)
    return yaml.safe_dump(content).encode(errors="replace")


async def _cluster(client: Client, name: str, number: int, chance: Random) -> None:
    """Create the Cluster: a third has random spoilt fields, another third those of ControlPlanes."""
    body: dict[str, Any] = copy.deepcopy(shoots.cluster(name))
    if number % 3 == 1:
        for _ in range(3):
            manifests.mutated(body["spec"], chance)
    elif number % 3 == 2:
        _spoil_control_plane(body, chance)
    try:
        await client.request("POST", CLUSTERS.path(), manifests.encoded(body))
    except Refused:
        await good_cluster(client, name)


def _spoil_control_plane(cluster: dict[str, Any], chance: Random) -> None:
    """Spoil a field that only ControlPlanes read."""
    profile, status = cluster["spec"]["cloudProfile"]["spec"], cluster["spec"]["shoot"]["status"]
    match chance.randrange(5):
        case 0:
            profile["providerConfig"] = values.anything(chance)
        case 1:
            field = chance.choice(("kind", "machineImages", "loadBalancer", "unknown"))
            profile["providerConfig"] = {**profile["providerConfig"], field: values.anything(chance)}
        case 2:
            authorities = {"phase": values.anything(chance)}
            authorities["lastInitiationTime"] = chance.choice((*values.TIMES, values.anything(chance)))
            status["credentials"] = {"rotation": {"certificateAuthorities": authorities}}
        case 3:
            status["technicalID"] = chance.choice(values.TEXTS)
        case _:
            name = "generic-token-kubeconfig.secret.gardener.cloud/name"
            cluster["metadata"]["annotations"] = {name: chance.choice(values.TEXTS)}
