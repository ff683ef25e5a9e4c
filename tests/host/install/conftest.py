"""A node for all tests of this package, and windowbox in Pods on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.host.install import release
from tests.host.install.release import Release
from tests.support import helm, servers, worldwithnodes
from windowbox.chart.generated import CHART


@pytest.fixture(scope="package")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Everything in Pods of one node, as helm has installed it; helm takes it away in the end."""
    if reason := servers.missing("helm", "named"):
        pytest.skip(reason)
    for world in worldwithnodes.fixture(tmp_path_factory, nodes=1):
        release.bring_image(world, tmp_path_factory.mktemp("image") / "own.tar")
        made = Release(world)
        made.install(
            tmp_path_factory.mktemp("values"), CHART / "values-laptop.yaml", release.one_of_each(world)
        )
        yield made
        removed = helm.helm("uninstall", "windowbox", *made.to, "--wait", "--timeout=3m", patience=240)
        assert removed.returncode == 0, removed.stderr
