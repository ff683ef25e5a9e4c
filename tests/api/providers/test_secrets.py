"""Credentials for provider clusters, and then a search for them in all that is kept and said."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.providers.test_errors import infrastructure
from tests.api.providers.test_membership import of
from tests.support import livefiles
from tests.support.kindworld import CLOUDPROVIDER, KindWorld, kind_world
from tests.support.markers import Markers
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.refs import INFRASTRUCTURES

pytestmark = pytest.mark.serves("infrastructure")


@rule("K-1")
async def test_nothing_of_provider_secrets_is_kept_or_told(
    plane: ControlPlane,
    other: ControlPlane,
    nats: NatsServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    markers = Markers()
    async with kind_world(plane, nats, "infrastructure") as world:
        namespaces = [await _served(world, _noting_its_key(other, markers))]
        for number, kubeconfig in enumerate(_unusable(other, markers)):
            namespaces.append(await _failed(world, kubeconfig, number))
        await world.quiet()
        written = [_written(plane, namespace) for namespace in namespaces]
    kept = livefiles.contents(tmp_path / "nats")
    said = caplog.text.encode()
    assert all(namespace.encode() in kept for namespace in namespaces)  # the search would find what is there
    assert all(namespace.encode() in said for namespace in namespaces[1:])
    assert markers.in_(kept) == set()
    assert markers.in_(said) == set()
    assert markers.in_(b"".join(written)) == set()


async def _served(world: KindWorld, kubeconfig: bytes) -> str:
    shoot = await world.shoot(kubeconfig=kubeconfig)
    await infrastructure(shoot)
    await shoot.until_ready(INFRASTRUCTURES, "local")
    return shoot.namespace


async def _failed(world: KindWorld, kubeconfig: bytes, number: int) -> str:
    shoot = await world.shoot()
    await shoot.secret(f"wrong-{number}", kubeconfig=kubeconfig)
    await infrastructure(shoot, secret=f"wrong-{number}")
    await shoot.until_failed(INFRASTRUCTURES, "local")
    await shoot.secret(CLOUDPROVIDER, kubeconfig=kubeconfig)
    return shoot.namespace


def _noting_its_key(plane: ControlPlane, markers: Markers) -> bytes:
    content = plane.kubeconfigs["provider"].read_text()
    key = Path(yaml.safe_load(content)["users"][0]["user"]["client-key"]).read_text()
    markers.texts["private key"] = key.splitlines()[1]
    return of(plane)


def _unusable(plane: ControlPlane, markers: Markers) -> list[bytes]:
    """Kubeconfigs that are wrong in a way that is complained about."""

    def with_user(**user: Any) -> bytes:
        content = yaml.safe_load(of(plane))
        content["users"][0]["user"] = user
        return yaml.safe_dump(content).encode()

    return [
        with_user(token=markers.new("unknown token")),
        with_user(token=f"{markers.new('broken token')}\nand more"),
        with_user(username="a", password=markers.new("password")),
        with_user(exec={"command": "false", "args": [markers.new("argument")]}),
        with_user(**{"client-certificate-data": markers.new("certificate"), "client-key-data": "eA=="}),
        f"{{{markers.new('nonsense')}: ]".encode(),
        markers.new("no mapping").encode(),
        yaml.safe_dump({"current-context": markers.new("context")}).encode(),
        of(plane).replace(plane.url.encode(), f"ftp://{markers.new('server')}".encode()),
    ]


def _written(plane: ControlPlane, namespace: str) -> bytes:
    """What people can read in the namespace, apart from the Secrets."""
    paths = (INFRASTRUCTURES.path(namespace), f"/api/v1/namespaces/{namespace}/events")
    return b"".join(json.dumps(plane.api.read(path)).encode() for path in paths)
