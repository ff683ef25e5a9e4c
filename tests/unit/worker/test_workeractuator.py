"""The health of the machine-controller-manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, ObjectRef
from workers.core.owned.targets import TargetCluster
from workers.machines.worker import workeractuator

DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "machine-controller-manager", "namespace": "shoot--one", "generation": 1},
    "spec": {"replicas": 0},
    "status": {
        "observedGeneration": 1,
        "conditions": [{"type": "Available", "status": "True"}],
    },
}


class _NotMirrored:
    """A recorder of a cluster that is not mirrored yet."""

    def __init__(self, live: dict[str, Any] | None) -> None:
        self._live = live

    async def read(self, ref: ObjectRef) -> Object | None:
        return None

    async def call(
        self, kind: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        return self._live

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], Any]) -> Any:
        raise AssertionError("no Secret is read")


@pytest.mark.parametrize("live", [DEPLOYMENT, None], ids=["there", "missing"])
async def test_a_deployment_that_is_not_mirrored_yet_is_not_missing(live: dict[str, Any] | None) -> None:
    no_connection = cast(Any, SimpleNamespace(call=None))  # the recorder answers in its place
    target = TargetCluster(RUNTIME, _NotMirrored(live), no_connection)
    result = await workeractuator.manager_health(target, "shoot--one")
    assert ("not found" in str(result)) == (live is None)
