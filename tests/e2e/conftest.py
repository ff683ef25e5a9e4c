"""One small world for all tests here: use a namespace and names of your own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.servers import zoneserver
from tests.e2e import client
from tests.e2e.client import Space
from tests.e2e.smallworld import INNER, KEYED, SmallWorld, small_world
from tests.e2e.witness import Witness, witnessing
from tests.support import servers
from tests.support.servers import ControlPlane, NameServer


@pytest.fixture(scope="package")
def name_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NameServer]]:
    """Three zones, each on a server of its own."""
    servers.need("named", "nats-server")
    folder = tmp_path_factory.mktemp("named")
    with (
        servers.name_server(folder / "main", key=zoneserver.new_key()) as main,
        servers.name_server(folder / "inner", key=None, zone=INNER) as inner,
        servers.name_server(folder / "keyed", key=zoneserver.new_key("guest"), zone=KEYED) as keyed,
    ):
        yield {server.zone: server for server in (main, inner, keyed)}


@pytest.fixture(scope="package")
def witness(control_plane: ControlPlane) -> Iterator[Witness]:
    with witnessing(control_plane.kubeconfig) as made:
        yield made


@pytest.fixture(scope="package")
def world(
    control_plane: ControlPlane, name_servers: dict[str, NameServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallWorld]:
    """Serves the classes shoot and seed."""
    others = dict(name_servers)
    named = others.pop(zoneserver.ZONE)
    folder = tmp_path_factory.mktemp("world") / "main"
    with small_world(control_plane, folder, named, others, classes=["shoot", "seed"]) as made:
        yield made


@pytest.fixture
def space(control_plane: ControlPlane, witness: Witness, world: SmallWorld) -> Space:
    """A namespace outside of any Shoot."""
    return client.space(control_plane.api, witness, world.named.zone)


@pytest.fixture
def shoot_space(control_plane: ControlPlane, witness: Witness, world: SmallWorld) -> Space:
    """A namespace of a Shoot, whose Cluster is not there yet."""
    return client.space(control_plane.api, witness, world.named.zone, shoot=True)
