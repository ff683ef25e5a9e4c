"""Machines that do not join a Shoot that already has a node: each says why, by what real kubelets do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from sandbox.shoots import waiting
from tests.host.machines import handmade
from tests.host.machines.conftest import ShootWorld
from tests.support.rules import rule

# With simulated kubelets: tests/api/machine/test_trouble.py, and tests/unit/machines/test_phases.py.
pytestmark = pytest.mark.long

_BINDING = "windowbox:approve-joining"
_UNHEARD = "runs, but the Shoot's API server has not heard of it"


def _with_authority(world: ShootWorld, data: bytes) -> bytes:
    """With the authority of another API server."""
    other = (world.sandbox.folder / "pki" / "ca.crt").read_bytes()
    pem = rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n"
    return re.sub(pem, lambda _: other, data, flags=re.DOTALL)


BROKEN: dict[str, Callable[[ShootWorld, bytes], bytes]] = {
    "token": lambda _, data: data.replace(b"<<BOOTSTRAP_TOKEN>>", b"abcdef.0123456789abcdef"),
    "authority": _with_authority,
    "server": lambda _, data: re.sub(rb"SERVER=https://([^:]+):\d+", rb"SERVER=https://\1:1", data),
    "agent": lambda *_: b"#!/bin/sh\nexit 0\n",
}
"""What is wrong or missing in the user data of each."""


def _until(world: ShootWorld, name: str, holds: Callable[[str, str], bool], what: str) -> str:
    """The description of the Machine, once it and the phase meet the condition."""

    def is_so(found: dict[str, Any]) -> bool:
        status = found.get("status", {})
        return holds(
            status.get("currentStatus", {}).get("phase", ""),
            status.get("lastOperation", {}).get("description", ""),
        )

    found = waiting.until(
        world.sandbox.api, handmade.namespaced(world, "machines"), name, is_so, what, patience=300
    )
    return str(found["status"]["lastOperation"]["description"])


@pytest.fixture(scope="module")
def broken(world: ShootWorld) -> Iterator[ShootWorld]:
    """All of them at once: each has its reason some 15 s after it runs."""
    approval = yaml.safe_load(world.kubectl("get", "clusterrolebinding", _BINDING, "-o", "yaml"))
    world.kubectl("delete", "clusterrolebinding", _BINDING)
    try:
        for name, spoil in BROKEN.items():
            limit = {"creationTimeout": "1m30s"} if name == "agent" else {}
            handmade.of_own_class(world, f"no-{name}", partial(spoil, world), **limit)
        handmade.of_own_class(world, "no-approval", lambda data: data)
        yield world
    finally:
        for kept in ("uid", "resourceVersion", "creationTimestamp"):
            approval["metadata"].pop(kept)
        world.api.apply_object({**approval, "kind": "ClusterRoleBinding"})
        handmade.forget(world, [f"no-{name}" for name in [*BROKEN, "approval"]])


@rule("L3")
@pytest.mark.parametrize("name", BROKEN)
def test_a_machine_that_cannot_ask_says_that_it_was_not_heard_of(broken: ShootWorld, name: str) -> None:
    assert broken.api.read("/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]
    _until(broken, f"no-{name}", lambda _, text: _UNHEARD in text, "it does not say why")


@rule("L3")
def test_a_machine_whose_request_waits_joins_by_the_command_in_its_status(broken: ShootWorld) -> None:
    hint = r"certificate request (node-csr-\S+) of the kubelet is not approved: .*run kubectl (.+) there"
    text = _until(broken, "no-approval", lambda _, text: bool(re.search(hint, text)), "it does not say why")
    [(name, command)] = re.findall(hint, text)
    assert command == f"certificate approve {name}"
    broken.kubectl(*command.split())
    _until(broken, "no-approval", lambda phase, _: phase == "Running", "it does not join")


@rule("B9-R7", "L3")
def test_a_machine_that_came_too_late_keeps_its_reason(broken: ShootWorld) -> None:
    text = _until(broken, "no-agent", lambda phase, _: phase == "Failed", "it is not Failed")
    assert "failed to join the cluster in 1.5 minutes" in text
    assert _UNHEARD in text
