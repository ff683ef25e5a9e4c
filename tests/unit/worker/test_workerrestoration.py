"""The decoded state of a former seed."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from tests.support.rules import rule
from tests.support.workerexample import worker
from windowbox.errors import Malformed
from workers.machines.worker import workerrestoration

SET: dict[str, Any] = {
    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
    "metadata": {"name": "s", "namespace": "elsewhere", "labels": {"name": "d"}, "uid": "u"},
    "spec": {"replicas": 1}, "status": {"replicas": 1},
}  # fmt: skip


def encoded(content: object) -> dict[str, Any]:
    return packed(json.dumps(content).encode())


def packed(content: bytes) -> dict[str, Any]:
    return {"state": {"state": base64.b64encode(gzip.compress(content)).decode()}}


@rule("A15-R2", "A15-R3", "A15-R4")
def test_the_state_is_decoded_for_the_namespace_of_the_worker() -> None:
    machine = {"metadata": {"name": "m"}, "spec": {"providerID": "machine-m"}}
    content = {"machineDeployments": {"d": {"replicas": 2, "machineSets": [SET], "machines": [machine]}}}
    [(name, state)] = workerrestoration.decoded(worker(status=encoded(content))).items()
    assert (name, state.replicas) == ("d", 2)
    assert state.sets == (
        {
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": {"name": "s", "namespace": "shoot--local--demo", "labels": {"name": "d"}},
            "spec": {"replicas": 1},
        },
    )  # fmt: skip
    assert state.machines[0]["kind"] == "Machine"
    assert state.machines[0]["spec"] == {"providerID": "machine-m"}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="A15-R3-none"),
        pytest.param({"state": {}}, id="A15-R3-empty"),
        pytest.param(encoded({}), id="A15-R3-nothing-in-it"),
        pytest.param(
            encoded({"machineDeployments": {"d": {"replicas": 2, "machineSets": []}}}), id="A15-R2-no-sets"
        ),
    ],
)
def test_no_state(status: dict[str, Any]) -> None:
    assert workerrestoration.decoded(worker(status=status)) == {}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param({"state": {"state": "%"}}, "is not base64 of gzip", id="no-base64"),
        pytest.param({"state": {"state": "aGFsbG8="}}, "is not base64 of gzip", id="no-gzip"),
        pytest.param(packed(b"{"), "holds no JSON", id="no-json"),
        pytest.param(packed(b" " * (32 * 1024 * 1024 + 1)), "unpacks to more than", id="bomb"),
        pytest.param(packed(b"[" * 100_000), "holds no JSON", id="deep"),
        pytest.param(packed(b'{"machineDeployments": "\\ud800"}'), "holds no JSON", id="half-a-character"),
        pytest.param(
            encoded({"machineDeployments": {"d": {"machineSets": [{}]}}}), "without a name", id="no-name"
        ),
        pytest.param(
            encoded({"machineDeployments": {"d": {"machineSets": [{"metadata": {"name": 5}}]}}}),
            "without a name",
            id="name-is-a-number",
        ),
        pytest.param(
            encoded({"machineDeployments": {"d": {"replicas": 10**30}}}),
            "has 1e.30 replicas",
            id="replicas-huge",
        ),
        pytest.param(
            encoded({"machineDeployments": {"d": {"replicas": True}}}), "has True replicas", id="no-number"
        ),
    ],
)
def test_a_state_that_cannot_be_read_is_an_error(status: dict[str, Any], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        workerrestoration.decoded(worker(status=status))
