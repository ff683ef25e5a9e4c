"""Shoots that come, change and go, with what belongs to them; and what each of them ought to be."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from commands.demo import stage
from sandbox.servers import kubeconfigs
from tests.chaos.load import asking, insist
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models import refs
from windowbox.models.refs import Resource

NAME, SCRIPT, INGRESS, POLICY = "one", "one-init", "web", "provider-local-deny-all"
"""How things are called in examples/."""
ASKED: tuple[tuple[Resource, str], ...] = (
    (refs.INFRASTRUCTURES, NAME), (refs.OPERATING_SYSTEM_CONFIGS, SCRIPT),
    (refs.OPERATING_SYSTEM_CONFIGS, "one-original"), (refs.BASTIONS, NAME), (refs.INGRESSES, INGRESS),
)  # fmt: skip
"""What each Shoot asks for."""
_EXAMPLES = ("infrastructure.yaml", "operatingsystemconfig.yaml", "bastion.yaml", "ingress.yaml")
_KINDS = {
    r.kind: r for r in (refs.NAMESPACES, refs.CLUSTERS, refs.SECRETS, *(resource for resource, _ in ASKED))
}
_OWNER = "gardenlet"
_ADDRESS = {"status": {"loadBalancer": {"ingress": [{"ip": "172.18.255.224"}]}}}


@dataclass
class Wanted:
    """A Shoot as its owner wants it."""

    motd: bytes = b"hello\n"
    """What its machines say when they start."""
    allowed: tuple[str, ...] = ("127.0.0.0/8",)
    """Who may connect to its Bastion."""
    hosts: tuple[str, ...] = ()
    """Of its Ingress."""


@dataclass
class Shoots:
    """A client like gardenlet that knows what it has asked for, and asks until the API has understood."""

    kube: Kube
    kubeconfig: str
    seed: int
    count: int
    living: dict[str, Wanted] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        """Create all Shoots, then change, damage and delete some of them, spread over so many seconds."""
        names = [f"shoot--chaos--{n:02}" for n in range(self.count)]
        async with asyncio.TaskGroup() as group:
            for number, name in enumerate(names):
                group.create_task(self._live(name, random.Random(self.seed + number), seconds))

    async def _live(self, name: str, chance: random.Random, seconds: float) -> None:
        what: list[Callable[[str, random.Random], Awaitable[None]]] = [
            self._rewrite, self._allow, self._serve, self._damage, self._damage,
        ]  # fmt: skip
        chance.shuffle(what)
        pause = seconds / (len(what) + 2)
        await asyncio.sleep(pause * chance.random())  # the pace of the load
        await self._create(name)
        for act in what:
            await asyncio.sleep(pause * chance.random() * 2)  # the pace of the load
            await act(name, chance)
        if int(name.rpartition("-")[2]) % 3 == 0:
            await self._delete(name)

    async def _create(self, name: str) -> None:
        await prepare(self.kube, self.kubeconfig, name)
        for example in _EXAMPLES:
            for manifest in stage.manifests(example, name):
                await _apply(self.kube, _own(manifest, name))
        await insist(lambda: self.kube.merge(refs.INGRESSES, name, INGRESS, _ADDRESS, part="status"))
        self.living[name] = Wanted(hosts=_hosts(name, 2))

    async def _rewrite(self, name: str, chance: random.Random) -> None:
        """Other content of a file that new machines get."""
        wanted = self.living[name]
        wanted.motd = f"{chance.random()}\n".encode()
        found = await insist(lambda: self.kube.get(refs.OPERATING_SYSTEM_CONFIGS, name, SCRIPT))
        [file] = found.spec["files"]
        data = base64.b64encode(wanted.motd).decode()
        changed = {**file, "content": {"inline": {"encoding": "b64", "data": data}}}
        await self._ask(refs.OPERATING_SYSTEM_CONFIGS, name, SCRIPT, {"files": [changed]})

    async def _allow(self, name: str, chance: random.Random) -> None:
        """Let others connect to the Bastion."""
        cidr = f"127.{chance.randrange(256)}.0.0/16"
        self.living[name].allowed = (cidr,)
        await self._ask(refs.BASTIONS, name, NAME, {"ingress": [{"ipBlock": {"cidr": cidr}}]})

    async def _serve(self, name: str, chance: random.Random) -> None:
        """Have more hosts, or fewer."""
        hosts = _hosts(name, chance.choice([1, 3]))
        self.living[name].hosts = hosts
        rules = [{"host": host} for host in hosts]
        await insist(lambda: self.kube.merge(refs.INGRESSES, name, INGRESS, {"spec": {"rules": rules}}))

    async def _damage(self, name: str, chance: random.Random) -> None:
        """Delete by hand something that was made."""
        home, bastion = f"infra-{name}", f"bastion-{NAME}"
        resource, namespace, named = chance.choice(
            [
                (refs.NETWORK_POLICIES, home, POLICY),
                (refs.IP_POOLS, "", f"shoot-machine-pods-{name}-ipv4"),
                (refs.SERVICES, home, bastion),
                (refs.PODS, home, bastion),
            ]
        )
        await insist(lambda: self.kube.remove(resource, namespace, named))

    async def _delete(self, name: str) -> None:
        """Everything that was asked for, at once."""
        del self.living[name]
        self.dead.append(name)
        for resource, named in ASKED:
            await insist(lambda r=resource, n=named: self.kube.remove(r, name, n))  # type: ignore[misc]

    async def _ask(self, resource: Resource, namespace: str, name: str, spec: dict[str, Any]) -> None:
        await insist(lambda: self.kube.merge(resource, namespace, name, asking() | {"spec": spec}))


async def prepare(kube: Kube, kubeconfig: str, name: str) -> None:
    """Make what gardenlet puts there before everything else of a Shoot."""
    for manifest in stage.manifests("shoot.yaml", name):
        await _apply(kube, manifest)
    await _apply(kube, yaml.safe_load(kubeconfigs.secret(name, kubeconfig)))


async def _apply(kube: Kube, manifest: dict[str, Any]) -> None:
    resource, metadata = _KINDS[manifest["kind"]], manifest["metadata"]
    namespace, named = metadata.get("namespace", ""), metadata["name"]
    await insist(lambda: kube.apply(resource, namespace, named, manifest, owner=_OWNER))


def _own(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Hosts that no other Shoot has."""
    if manifest["kind"] == refs.INGRESSES.kind:
        manifest["spec"]["rules"] = [{"host": host} for host in _hosts(name, 2)]
    return manifest


def _hosts(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"web-{n}.{name}.chaos.local.gardener.cloud" for n in range(count))
