"""The name server of an installation, as the cases of tests/e2e use theirs."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.servers import zoneserver
from tests.support import release
from tests.support.release import Release
from tests.support.servers import NameServer


@dataclass
class PodWorld:
    """An installation where tests expect processes."""

    release: Release
    named: NameServer

    def alive(self) -> bool:
        return self.release.restarts() == {}


def world(installed: Release) -> PodWorld:
    host = release.service_address(installed.node, 53)
    named = NameServer(53, installed.node.sandbox.folder, None, zoneserver.ZONE, host=host)
    return PodWorld(installed, named)
