"""One API server, on which windowbox serves some namespaces and Gardener's own controller another."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.conformance import gardens
from tests.support import leftovers, providerlocal, servers, standins
from tests.support.machinecontrollermanager import PROGRAM
from tests.support.running import running
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Refused

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Remove the objects of each test."""
    with leftovers.removed():
        yield


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    servers.need("etcd", "kube-apiserver", "kube-controller-manager", "nats-server", PROGRAM)
    with servers.control_plane(tmp_path_factory.mktemp("plane"), controllers=True, audit=True) as made:
        yield made


@pytest.fixture(scope="package")
def defined(plane: ControlPlane) -> Iterator[None]:
    """The kinds that webhooks of Gardener's own programs read."""
    standins.define(plane.api)
    yield
    standins.remove(plane.api)


@pytest.fixture(scope="module")
def of_garden(plane: ControlPlane, defined: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of Gardener's own admission in the garden."""
    servers.need(providerlocal.ADMISSION)
    with providerlocal.admission(tmp_path_factory.mktemp("admission"), plane.kubeconfig) as url:
        yield url
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        # The webhook server is gone: the API server must not call it any more.
        with contextlib.suppress(Refused):
            name = "gardener-extension-admission-local"
            plane.api.request("DELETE", f"{_CONFIGURATIONS}/{kind}/{name}").close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A garden, runtime cluster and seed in one, in which Gardener's own controllers install extensions."""
    yield from gardens.cluster(tmp_path_factory.mktemp("garden"))


@pytest_asyncio.fixture
async def api(cluster: ControlPlane) -> AsyncIterator[Kube]:
    async with kube.from_file(cluster.kubeconfig) as opened, running(gardens.in_place_of_kubelets(opened)):
        yield opened
