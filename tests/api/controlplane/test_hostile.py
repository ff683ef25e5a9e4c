"""ControlPlanes whose Cluster is wrong, deep or huge, and a good one among them."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from tests.api.controlplane.controlplanes import (
    KUBERNETES,
    PROFILE,
    bundles,
    controlplane,
    shoot_of,
    until_ready,
)
from tests.support.kindworld import Client, KindWorld
from tests.support.rules import rule
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES

pytestmark = pytest.mark.serves("controlplane")

_ROTATED_BY_NOBODY = {"lastInitiationTime": 7, "phase": [1]}
_KUBECONFIG = "generic-token-kubeconfig.secret.gardener.cloud/name"


@rule("B.9", "E-2")
async def test_each_is_told_what_is_wrong_and_a_neighbour_is_served(world: KindWorld) -> None:
    wrong = {
        "loadBalancer.image is 3: write a text": await _of(world, _config(loadBalancer={"image": 3})),
        "extra is unknown (it is {": await _of(world, _config(extra=_deep(200))),
        "more than 10000 values: take out": await _of(world, _config(machineImages=[{}] * 60_000)),
        "providerConfig is 'x": await _of(world, {"spec": {"providerConfig": "x" * 900_000}}),
        "technicalID of the Shoot": await _of(world, PROFILE, status={"technicalID": "../../x"}),
        "cannot be a name in secrets": await _with_kubeconfig(world, "../configmaps/x"),
    }
    odd = await _of(
        world, PROFILE, status={"credentials": {"rotation": {"certificateAuthorities": _ROTATED_BY_NOBODY}}}
    )
    good = await shoot_of(world)
    shoots = [*wrong.values(), odd, good]
    await asyncio.gather(*(controlplane(shoot) for shoot in shoots))
    await until_ready(good)
    await until_ready(odd)
    for text, shoot in wrong.items():
        failed = await shoot.until_failed(CONTROL_PLANES, "local")
        error = failed.status["lastError"]
        assert text in error["description"]
        assert len(error["description"]) < 2500
        assert error["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    for shoot in shoots:
        await shoot.delete(CONTROL_PLANES, "local")
    for shoot in shoots:
        await shoot.until_gone(CONTROL_PLANES, "local")
        assert await bundles(shoot) == {}


async def _of(world: KindWorld, profile: Any, **shoot: Any) -> Client:
    return await world.shoot(cloudProfile=profile, spec=KUBERNETES, **shoot)


async def _with_kubeconfig(world: KindWorld, name: str) -> Client:
    """A Shoot whose Cluster names a Secret by what leads elsewhere."""
    shoot = await shoot_of(world)
    await shoot.merge(CLUSTERS, shoot.namespace, {"metadata": {"annotations": {_KUBECONFIG: name}}})
    return shoot


def _config(**fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(PROFILE)
    made["spec"]["providerConfig"] |= fields
    return made


def _deep(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = {"a": made}
    return made
