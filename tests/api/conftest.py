"""The cluster that is served, and another one that its machines may run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import leftovers, servers
from tests.support.servers import ControlPlane


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each test finds no objects of others, but their namespaces."""
    with leftovers.removed():
        yield


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """For kinds that make objects, with controllers and an audit log: use a Shoot of your own.

    Tests of load balancers have `control_plane`: they look at all Services and nodes, and these leave some.
    """
    if reason := servers.missing("etcd", "kube-apiserver", "kube-controller-manager", "nats-server"):
        pytest.skip(reason)
    with servers.control_plane(tmp_path_factory.mktemp("plane"), controllers=True, audit=True) as made:
        yield made


@pytest.fixture(scope="package")
def other(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Another cluster, for machines."""
    with servers.control_plane(tmp_path_factory.mktemp("other"), controllers=True, audit=True) as made:
        yield made
