"""A sandbox with what a Gardener needs of it, which the long tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import detached
from sandbox.programs import binaries
from tests.support import worldwithnodes
from tools.gardener import base, programs
from tools.gardener.base import Base


@pytest.fixture(scope="package")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    worldwithnodes.need()
    if not binaries.cached(programs.PROGRAMS["coredns"]).exists():
        pytest.skip("coredns is not built: run `windowbox gardener build`")
    folder = tmp_path_factory.mktemp("gardener") / "sandbox"
    try:
        detached.up(folder, base.options(nodes=2, played=1))
        base.prepare(folder)
        yield base.prepare(folder)  # a second time: it changes nothing
    finally:
        detached.down(folder, wipe=True)
