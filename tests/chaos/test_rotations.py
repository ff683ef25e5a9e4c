"""Workers die while the authorities of many Shoots are rotated: nothing is without a valid certificate."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from tests.api.controlplane.controlplanes import KUBERNETES, PROFILE, controlplane, shoot_of
from tests.chaos.workers import Workers, working
from tests.support.kindworld import Client, KindWorld, kind_world, ready
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.errors import TransientError, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import CONTROL_PLANES, SECRETS

_LONG = os.environ.get("CHAOS") == "long"
_SHOOTS, _KILLS = (50, 20) if _LONG else (10, 4)
_PATIENCE = 1800.0 if _LONG else 240.0
_PHASES = (("Preparing", "PreparingWithoutWorkersRollout"), ("Completing",))
"""Every other Shoot is rotated without a roll-out of its workers."""
_AUTHORITY, _SERVER = "ca-provider-local-controlplane", "provider-local-dummy-server"


@dataclass
class Witness:
    """Follows the Secrets of all Shoots, one change after the other."""

    found: dict[str, dict[str, Object]] = field(default_factory=dict)
    """By namespace and name."""
    created: int = 0
    complaints: list[str] = field(default_factory=list)
    complete: set[str] = field(default_factory=set)
    """Namespaces that have had everything once, and never may be without it again."""
    issued: dict[str, set[bytes]] = field(default_factory=dict)
    """The authorities of each namespace."""

    async def follow(self, world: KindWorld) -> None:
        selected = SECRETS._replace(selector="manager-identity=provider-local-controlplane")
        version = (await world.kube.page(selected)).resource_version
        while True:
            with contextlib.suppress(TransientError):
                async for events in world.kube.watch(selected, version):
                    for event in events:
                        seen = Object(event.object)
                        version = seen.resource_version
                        if event.type != "BOOKMARK":
                            self._take(event.type, seen)

    def _take(self, type_: str, secret: Object) -> None:
        own = self.found.setdefault(secret.namespace, {})
        self.created += secret.name not in own
        if type_ == "DELETED":
            own.pop(secret.name, None)
        else:
            own[secret.name] = secret
        if secret.labels.get("name") == _AUTHORITY:
            self.issued.setdefault(secret.namespace, set()).add(_data(secret, "ca.crt"))
        self._judge(secret.namespace, own)

    def _judge(self, namespace: str, own: dict[str, Object]) -> None:
        """There is a server certificate that an authority in the newest bundle has signed."""
        trusted = [
            one
            for bundle in _of(own, f"{_AUTHORITY}-bundle")
            for one in x509.load_pem_x509_certificates(_data(bundle, "bundle.crt"))
        ]
        certificates = [x509.load_pem_x509_certificate(_data(one, "tls.crt")) for one in _of(own, _SERVER)]
        valid = any(_signed(one, by) for one in certificates for by in trusted)
        if valid:
            self.complete.add(namespace)
        elif namespace in self.complete:
            self.complaints.append(f"{namespace}: no valid server certificate among {sorted(own)}")
        if namespace in self.complete and not _of(own, _AUTHORITY):
            self.complaints.append(f"{namespace}: no authority among {sorted(own)}")


def _of(own: dict[str, Object], config: str) -> list[Object]:
    return [one for one in own.values() if one.labels.get("name") == config]


def _data(secret: Object, key: str) -> bytes:
    return base64.b64decode(secret.raw["data"][key])


def _signed(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


@rule("Z-5", "V-7")
@pytest.mark.long
@pytest.mark.timeout(_PATIENCE + 300)
async def test_workers_die_while_authorities_rotate(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    witness = Witness()
    async with kind_world(plane, nats) as world, working(world, tmp_path, "controlplane") as worker:
        following = asyncio.create_task(witness.follow(world))
        shoots = await asyncio.gather(*(shoot_of(world) for _ in range(_SHOOTS)))
        async with asyncio.timeout(_PATIENCE):
            await asyncio.gather(*(controlplane(shoot) for shoot in shoots))
            await _until_all_ready(world)
            killing = asyncio.create_task(_kill(worker, witness))
            try:
                for phases in _PHASES:
                    begun = zip(shoots, itertools.cycle(phases), strict=False)
                    await asyncio.gather(*(_begin(shoot, phase) for shoot, phase in begun))
                    await _until_all_ready(world)
                    await world.quiet()
            finally:
                killing.cancel()
        assert not following.done(), following.result()
        following.cancel()
        last = {shoot.namespace: witness.found[shoot.namespace] for shoot in shoots}
    assert worker.kills > 0
    print(f"{worker.kills} kills")
    assert witness.complaints == []
    assert len(witness.complete) == _SHOOTS
    # One before the rotation and one of it: a run that was cut off has its successor adopt what it made.
    assert {namespace: len(found) for namespace, found in witness.issued.items()} == dict.fromkeys(last, 2)
    assert all(len(_of(own, _AUTHORITY)) == 1 for own in last.values())


async def _begin(shoot: Client, phase: str) -> None:
    rotation = {"lastInitiationTime": "2026-09-02T00:00:00Z", "phase": phase}
    status = {"credentials": {"rotation": {"certificateAuthorities": rotation}}}
    await shoot.cluster(spec=KUBERNETES, status=status, cloudProfile=PROFILE)
    await shoot.ask(CONTROL_PLANES, "local")


async def _until_all_ready(world: KindWorld) -> None:
    """One watch for all: a connection for each Shoot would be more than a client opens."""
    while True:
        page = await world.kube.page(CONTROL_PLANES, limit=5000)
        left = {one.namespace for one in map(Object, page.items) if not ready(one)}
        if not left:
            return
        with contextlib.suppress(WindowboxError):
            async for events in world.kube.watch(CONTROL_PLANES, page.resource_version):
                left -= {one.namespace for one in (Object(event.object) for event in events) if ready(one)}
                if not left:
                    return


async def _kill(worker: Workers, witness: Witness) -> None:
    """Kill the worker after every few new Secrets."""
    seen = witness.created
    while worker.kills < _KILLS:
        await asyncio.sleep(0.1)  # the witness has no event
        if witness.created - seen > _SHOOTS // 5:
            seen = witness.created
            worker.kill()
