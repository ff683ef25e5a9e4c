"""One deployment for all tests of commands: use a namespace of your own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sandbox.servers import zoneserver
from tests.api.commands.operated import CommandLine, Operated
from tests.api.commands.operated import operated as deployment
from tests.support import servers
from tests.support.servers import ControlPlane


@pytest.fixture(scope="package")
def operated(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """windowbox in one process, with servers of its own. It serves every record of the shared API server,
    so it must be gone before the tests of another package begin.
    """
    servers.need("named", "nats-server")
    folder = tmp_path_factory.mktemp("operated")
    with (
        servers.name_server(folder / "named", key=zoneserver.new_key()) as named,
        deployment(control_plane, named, folder) as made,
    ):
        yield made


@pytest.fixture
def alone(nats_url: str, tmp_path: Path) -> CommandLine:
    """The command line of a bus without any process of windowbox."""
    settings = tmp_path / "operator.yaml"
    settings.write_text(yaml.safe_dump({"nats": {"url": nats_url}}))
    return CommandLine(settings, {})
