"""Machines whose kubelets have requested certificates, in a Shoot that already has nodes."""

from __future__ import annotations

import secrets
import subprocess
from typing import Any

import pytest
import yaml

from sandbox.programs import binaries
from tests.api.machine.machines import machines
from tests.support.kindworld import KindWorld
from tests.support.kubeletrequests import SERVING, request
from tests.support.rules import rule
from windowbox.models.refs import CERTIFICATE_REQUESTS, Resource
from workers.machines import names

pytestmark = pytest.mark.serves("machine")

GROUP = "test:bootstrappers"
_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": GROUP},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:node-bootstrapper",
    },
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}],
}
"""The right to request certificates, and none to have them approved."""


def create(world: KindWorld, user: str, *bodies: dict[str, Any]) -> None:
    """As this user, which the API server notes in the request."""
    command = [
        str(binaries.find("kubectl")), f"--kubeconfig={world.plane.kubeconfig}", "create", "-f", "-",
        f"--as={user}", f"--as-group={GROUP}",
    ]  # fmt: skip
    subprocess.run(command, input=yaml.safe_dump_all(bodies), check=True, text=True, timeout=60)


@rule("L3")
async def test_a_request_that_waits_is_named_in_a_shoot_that_has_nodes(world: KindWorld) -> None:
    tag = secrets.token_urlsafe(20)
    others = [
        request("elsewhere", name=f"node-csr-Gcc_{tag}"),
        *(request("elsewhere", SERVING, name=f"csr-{n}{secrets.token_hex(3)}") for n in range(20)),
    ]
    mine = f"node-csr-{tag}_dse6"
    async with machines(world, joins=False) as made:
        await world.kube.create(_BINDINGS, "", BINDING)
        try:
            create(world, "system:bootstrap:abcdef", *others)
            machine = await made.machine("late")
            await made.until("late", "Pending")
            user = f"system:bootstrap:{names.token_id(machine.uid)}"
            create(world, user, request("machine-late", name=mine))
            await made.until_described("late", f"run kubectl certificate approve {mine} there")
        finally:
            await world.kube.remove(_BINDINGS, "", GROUP)
            for name in [mine, *(one["metadata"]["name"] for one in others)]:
                await world.kube.remove(CERTIFICATE_REQUESTS, "", name)
