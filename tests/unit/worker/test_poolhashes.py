"""The hashes of worker pools, by the vectors of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models.gardener.worker import WorkerPool
from workers.machines.worker import poolhashes

ROTATED = "2026-08-21T10:00:00Z"


def pool(name: str, agent: str | None = None, **more: Any) -> WorkerPool:
    required = {
        "name": name, "machineType": "local", "minimum": 1, "maximum": 1, "maxSurge": 1, "maxUnavailable": 0,
        "userDataSecretRef": {"name": "osc", "key": "cloud_config"}, "nodeAgentSecretName": agent,
    }  # fmt: skip
    return WorkerPool.model_validate(required | more)


def big(version: str = "1.0.0", **more: Any) -> WorkerPool:
    image = {"name": "local", "version": version}
    agent = "gardener-node-agent-big"
    return pool("big", agent, machineImage=image, kubernetesVersion="1.35.4", **more)


def rotation(**rotated: Any) -> dict[str, Any]:
    return {"status": {"credentials": {"rotation": rotated}}}


@rule("A7", "A7-R2")
def test_the_hash_of_a_rolling_pool_depends_on_its_secret_name_only() -> None:
    # gardenlet makes that name: here of the Kubernetes version, machine type, image and container runtime.
    agent = (
        f"gardener-node-agent-small-{poolhashes.combined(['1.35', 'local', 'local1.0.0', 'containerd'])[:16]}"
    )
    assert agent == "gardener-node-agent-small-6af919d2b5e8f371"
    assert poolhashes.class_hash(pool("small", agent)) == "7dbbe"
    other = pool("small", agent, machineType="large", zones=["a"], minimum=0, labels={"a": "b"})
    assert poolhashes.class_hash(other) == "7dbbe"
    assert poolhashes.combined([agent, "x"])[:5] == "7f2a1"


RESERVED: dict[str, Any] = {"kubeletConfig": {"kubeReserved": {"cpu": "80m", "memory": "1Gi", "pid": "20k"}}}


@pytest.mark.parametrize(
    ("asked", "shoot", "in_place", "of_class"),
    [
        pytest.param(big(), {}, "158f7ddcc5c0a83f", "47eee", id="A7-plain"),
        pytest.param(big("2.0.0"), {}, "3cc9b817dc69cc34", "de6a7", id="A7-another-image"),
        pytest.param(
            big(**RESERVED), rotation(certificateAuthorities={"lastInitiationTime": ROTATED}),
            "81f469a84c315844", "b29d8", id="A7-rotated-and-with-reserves",
        ),
    ],
)  # fmt: skip
def test_vectors_of_pools_that_are_updated_in_place(
    asked: WorkerPool, shoot: dict[str, Any], in_place: str, of_class: str
) -> None:
    assert poolhashes.in_place_hash(asked, shoot) == in_place
    assert poolhashes.class_hash(asked, in_place) == of_class


def test_the_roll_out_of_a_pool_has_a_time_of_its_own() -> None:
    pending = [{"name": "other", "lastInitiationTime": "2026-01-01T00:00:00Z"}, {"name": "big"}]
    shoot = rotation(
        certificateAuthorities={"lastInitiationTime": ROTATED, "pendingWorkersRollouts": pending}
    )
    assert poolhashes.in_place_hash(big(), shoot) == poolhashes.in_place_hash(big(), {})
    pending[1]["lastInitiationTime"] = ROTATED
    expected = rotation(certificateAuthorities={"lastInitiationTime": ROTATED})
    assert poolhashes.in_place_hash(big(), shoot) == poolhashes.in_place_hash(big(), expected)


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        pytest.param(None, [], id="none"),
        pytest.param({}, [], id="empty"),
        pytest.param({"kubeReserved": {}}, ["<nil>-<nil>-<nil>-<nil>"], id="nothing-reserved"),
        pytest.param(
            {
                "cpuManagerPolicy": "static",
                "evictionHard": {"memoryAvailable": "5%", "nodeFSAvailable": "1Gi"},
            },
            ["--5%-1Gi-", "static"],
            id="eviction-and-policy",
        ),
    ],
)
def test_kubelet_settings_in_the_hash(config: dict[str, Any] | None, parts: list[str]) -> None:
    assert poolhashes.kubelet_parts(big(kubeletConfig=config).kubelet_config) == parts


@rule("A7-R1", "L22")
def test_a_pool_without_the_name_of_its_secret_is_an_error() -> None:
    with pytest.raises(Malformed, match='missing node-agent secret name for worker pool "small"') as raised:
        poolhashes.class_hash(pool("small"))
    assert raised.value.codes == ("ERR_CONFIGURATION_PROBLEM",)


def test_a_version_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(Malformed, match=r"failed to parse kubernetes version 'new'.*kubernetesVersion"):
        poolhashes.in_place_hash(pool("big", kubernetesVersion="new"), {})
    shoot = {"spec": {"kubernetes": {"version": "1.35.0"}}}
    assert poolhashes.in_place_hash(pool("big"), shoot) == poolhashes.in_place_hash(
        pool("big", kubernetesVersion="1.35.9"), {}
    )
