"""A host with a Docker engine for all tests here; each test leaves it without containers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.engine import Unable
from tests.host.docker import host as hosts
from tests.host.docker import traffic
from tests.host.docker.host import IMAGE, NETWORK, RANGE4, RANGE6, Host
from windowbox.clients import docker
from windowbox.clients.docker import Engine
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.docker import attaching


@pytest.fixture(scope="package")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    if reason := hosts.missing():
        pytest.skip(reason)
    try:
        with hosts.host(tmp_path_factory.mktemp("docker")) as made:
            yield made
    except Unable as error:
        pytest.skip(str(error))


@pytest_asyncio.fixture
async def engine(host: Host) -> AsyncIterator[Engine]:
    async with docker.opened(host.socket) as opened:
        yield opened
    host.tidy()


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> LoadBalancerSettings:
    """The settings for, say, `docker-host`."""
    return LoadBalancerSettings.model_validate(
        {
            "attachment": request.param,
            "folder": tmp_path / "envoy",
            "image": IMAGE,
            "network": NETWORK,
            "ranges": [{"prefixes": [RANGE4, RANGE6]}],
        }
    )


@pytest.fixture
def attach(settings: LoadBalancerSettings) -> Callable[[Engine], Attachment]:
    """Creates the attachment as a new process of windowbox does."""
    return lambda engine: attaching.on_docker(engine, settings)


@pytest_asyncio.fixture
async def attachment(engine: Engine, attach: Callable[[Engine], Attachment]) -> AsyncIterator[Attachment]:
    made = attach(engine)
    async with traffic.discovering(made):
        yield made
