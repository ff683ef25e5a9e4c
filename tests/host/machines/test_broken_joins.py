"""Machines that do not join a Shoot that already has a node: each says why, by what real kubelets do."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.host.machines.conftest import ShootWorld
from tests.support.rules import rule
from windowbox.errors import Refused
from windowbox.sandbox.shoots import creation, waiting

_API = "machine.sapcloud.io/v1alpha1"
_BINDING = "windowbox:approve-joining"
_UNHEARD = "runs, but the Shoot's API server has not heard of it"


def _with_authority(data: bytes, world: ShootWorld) -> bytes:
    """With the authority of another API server."""
    other = (world.sandbox.folder / "pki" / "ca.crt").read_bytes()
    pem = rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n"
    return re.sub(pem, lambda _: other, data, flags=re.DOTALL)


BROKEN: dict[str, Callable[[bytes, ShootWorld], bytes]] = {
    "token": lambda data, _: data.replace(b"<<BOOTSTRAP_TOKEN>>", b"abcdef.0123456789abcdef"),
    "authority": _with_authority,
    "server": lambda data, _: re.sub(rb"SERVER=https://([^:]+):\d+", rb"SERVER=https://\1:1", data),
    "agent": lambda *_: b"#!/bin/sh\nexit 0\n",
}
"""What is wrong or missing in the user data of each."""


def _namespaced(world: ShootWorld, plural: str, name: str = "") -> str:
    base = "/api/v1" if plural == "secrets" else f"/apis/{_API}"
    return f"{base}/namespaces/{world.shoot.technical_id}/{plural}" + (f"/{name}" if name else "")


def _make(world: ShootWorld, name: str, change: Callable[[bytes], bytes], **spec: Any) -> None:
    """A Machine of a class of its own, whose user data is that of the Worker's, changed."""
    namespace, api = world.shoot.technical_id, world.sandbox.api
    classes = api.read(_namespaced(world, "machineclasses"))["items"]
    [first] = [one for one in classes if one["metadata"]["name"].startswith(namespace)]
    data = api.read(_namespaced(world, "secrets", first["secretRef"]["name"]))["data"]
    given = base64.b64decode(data["userData"])
    changed = change(given)
    metadata = {"name": name, "namespace": namespace}
    content = {**data, "userData": base64.b64encode(changed).decode()}
    creation.apply(api, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": content})
    kept = {key: first[key] for key in ("provider", "providerSpec", "nodeTemplate", "credentialsSecretRef")}
    ref = {"name": name, "namespace": namespace}
    made = {"apiVersion": _API, "kind": "MachineClass", "metadata": metadata, "secretRef": ref, **kept}
    # Its plural is not its kind with an s.
    api.apply(_namespaced(world, "machineclasses", name), made)
    wanted = {"class": {"kind": "MachineClass", "name": name}, **spec}
    creation.apply(api, {"apiVersion": _API, "kind": "Machine", "metadata": metadata, "spec": wanted})


def _until(world: ShootWorld, name: str, holds: Callable[[str, str], bool], what: str) -> str:
    """The description of the Machine, once it and the phase meet the condition."""

    def is_so(found: dict[str, Any]) -> bool:
        status = found.get("status", {})
        return holds(
            status.get("currentStatus", {}).get("phase", ""),
            status.get("lastOperation", {}).get("description", ""),
        )

    found = waiting.until(world.sandbox.api, _namespaced(world, "machines"), name, is_so, what, patience=300)
    return str(found["status"]["lastOperation"]["description"])


@pytest.fixture(scope="module")
def broken(world: ShootWorld) -> Iterator[ShootWorld]:
    """All of them at once: each has its reason some 15 s after it runs."""
    approval = yaml.safe_load(world.kubectl("get", "clusterrolebinding", _BINDING, "-o", "yaml"))
    world.kubectl("delete", "clusterrolebinding", _BINDING)
    names = [*BROKEN, "approval"]
    try:
        for name, change in BROKEN.items():
            limit = {"creationTimeout": "1m30s"} if name == "agent" else {}
            _make(world, f"no-{name}", lambda data, change=change: change(data, world), **limit)  # type: ignore[misc]
        _make(world, "no-approval", lambda data: data)
        yield world
    finally:
        for kept in ("uid", "resourceVersion", "creationTimestamp"):
            approval["metadata"].pop(kept)
        creation.apply(world.api, {**approval, "kind": "ClusterRoleBinding"})
        for name in names:
            with contextlib.suppress(Refused):
                world.sandbox.api.request("DELETE", _namespaced(world, "machines", f"no-{name}")).close()
        for name in names:
            machines = _namespaced(world, "machines")
            waiting.until_gone(world.sandbox.api, machines, f"no-{name}", "it is still there", patience=120)
            for plural in ("machineclasses", "secrets"):
                with contextlib.suppress(Refused):
                    world.sandbox.api.request("DELETE", _namespaced(world, plural, f"no-{name}")).close()


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
