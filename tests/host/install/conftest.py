"""A node for all tests of this package, and windowbox in Pods on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import release, servers, worldwithnodes
from tests.support.release import Release
from tools.chart.generated import CHART


@pytest.fixture(scope="package")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Everything in Pods of one node, as helm has installed it; helm takes it away in the end."""
    servers.need("helm", "named")
    for world in worldwithnodes.fixture(tmp_path_factory, nodes=1):
        release.bring_image(world, tmp_path_factory.mktemp("image") / "own.tar", edge=True)
        made = Release(world)
        preset = CHART / "values-laptop.yaml"
        made.install(tmp_path_factory.mktemp("values"), preset, release.one_of_each(world))
        yield made
        made.uninstall()
