"""Gardener's resource manager, at work in one namespace of a test's cluster.

Objects for a Shoot go into the same cluster. Its Pods are made ready, since there is no kubelet.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import brotli
import pytest
import yaml

from sandbox.children import Child
from sandbox.servers import resourcemanager
from tests.support import servers
from tests.support.kindworld import Client
from tests.support.running import PATIENCE, eventually, running
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, Refused, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import PODS, SECRETS, Resource

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_GROUP = "admissionregistration.k8s.io"
_POLICIES = Resource(
    _GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
_BINDINGS = Resource(
    _GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
_ALL_CLASSES = "*"
_REFUSAL = "refuse-extensions"
_REFUSED = "local-ext-"
"""Prefix of the names of refused objects."""
_POLICY: dict[str, Any] = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": ["", "apps"],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "resources": ["serviceaccounts", "deployments"],
            }
        ]
    },
    "matchConditions": [{"name": "ours", "expression": f"request.name.startsWith('{_REFUSED}')"}],
}


class ResourceManager:
    """Runs within `at_work`. `behave` makes it slow, or makes the API server refuse its changes."""

    def __init__(self, shoot: Client) -> None:
        self._kube: Kube = shoot.kube
        self._namespace = shoot.namespace
        self._kubeconfig = shoot.world.plane.kubeconfig
        self._process: Popen[bytes] | None = None

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[ResourceManager]:
        if reason := servers.missing(resourcemanager.PROGRAM):
            pytest.skip(reason)
        with tempfile.TemporaryDirectory(prefix="resource-manager-") as name:
            folder = Path(name)
            child = resourcemanager.child(
                folder, self._kubeconfig, self._kubeconfig, _ALL_CLASSES, namespaces=(self._namespace,)
            )
            self._process = await _started(child, folder)
            try:
                async with running(self._make_pods_ready()):
                    yield self
            finally:
                await self.behave()
                await asyncio.to_thread(servers.end, self._process)

    async def behave(self, *, slow: bool = False, failure: str = "") -> None:
        """Stop it, or let its changes fail with this text, from now on."""
        await self._refuse(failure)
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGSTOP if slow else signal.SIGCONT)

    async def _refuse(self, words: str) -> None:
        """Have the API server refuse all changes of the objects of Extensions."""
        if words:
            policy = {**_POLICY, "validations": [{"expression": "false", "message": words}]}
            await self._apply(_POLICIES, policy)
            await self._apply(_BINDINGS, {"policyName": _REFUSAL, "validationActions": ["Deny"]})
        else:
            for resource in (_BINDINGS, _POLICIES):
                await self._kube.remove(resource, "", _REFUSAL)

        # No event shows that a policy is in force.
        async def in_force() -> bool:
            return await self._refuses() is bool(words)

        await eventually(in_force)

    async def _refuses(self) -> bool:
        name = f"{_REFUSED}probe"
        body = {"metadata": {"name": name, "namespace": self._namespace}}
        try:
            await self._kube.create(SERVICE_ACCOUNTS, self._namespace, body)
        except Refused:
            return True
        except TransientError:  # it exists: the former one could not be deleted
            pass
        try:
            await self._kube.remove(SERVICE_ACCOUNTS, self._namespace, name)
        except Refused:
            return True
        return False

    async def _apply(self, resource: Resource, spec: dict[str, Any]) -> None:
        body = {
            "apiVersion": f"{_GROUP}/v1",
            "kind": resource.kind,
            "metadata": {"name": _REFUSAL},
            "spec": spec,
        }
        await self._kube.apply(resource, "", _REFUSAL, body, owner="test")

    async def _make_pods_ready(self) -> None:
        pods = PODS._replace(selector="", within="kube-system")
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        while True:
            page = await self._kube.page(pods)
            found = [Object(raw) for raw in page.items]
            for pod in (one for one in found if one.status.get("phase") == "Pending"):
                with contextlib.suppress(Missing, TransientError):
                    await self._kube.merge(PODS, pod.namespace, pod.name, {"status": status}, part="status")
            with contextlib.suppress(TransientError):
                async for events in self._kube.watch(pods, page.resource_version):
                    if any(event.type == "ADDED" for event in events):
                        break


async def unpacked(shoot: Client, name: str) -> list[dict[str, Any]]:
    """The objects that a Secret holds for a resource manager."""
    secret = await shoot.kube.get(SECRETS, shoot.namespace, name)
    assert list(secret.raw["data"]) == ["data.yaml.br"]
    text = brotli.decompress(base64.b64decode(secret.raw["data"]["data.yaml.br"]))
    return list(yaml.safe_load_all(text))


async def _started(child: Child, folder: Path) -> Popen[bytes]:
    """The process, ready. It needs an inotify instance, of which nodes of other tests may have taken all."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await asyncio.to_thread(servers.start, child, folder)
            except RuntimeError as error:
                if "inotify" not in str(error):
                    raise
            await asyncio.sleep(0.5)  # no event shows that one is free again
