"""Tenants of provider clusters: their Infrastructures, their kubeconfigs, and a server that lies."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from sandbox.servers import certificates
from sandbox.servers.kubeconfigs import text
from tests.support import webserver
from tests.support.kindworld import CLOUDPROVIDER, Client, inline
from tests.support.servers import ControlPlane
from tests.support.tenantconfigs import naming
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES
from windowbox.rights import rbac

_GROUP = "rbac.authorization.k8s.io"
_RBAC = f"/apis/{_GROUP}/v1"


async def infrastructure(shoot: Client, secret: str = CLOUDPROVIDER) -> None:
    reference = {"name": secret, "namespace": shoot.namespace}
    await shoot.create(INFRASTRUCTURES, "local", {"region": "local", "secretRef": reference})


async def served(*shoots: Client) -> None:
    """Create the Infrastructures one after the other, and wait until each is ready."""
    for shoot in shoots:
        await infrastructure(shoot)
        await shoot.until_ready(INFRASTRUCTURES, "local")


async def refused(shoot: Client, secret: str = CLOUDPROVIDER) -> Object:
    """Create an Infrastructure, and wait until it has failed."""
    await infrastructure(shoot, secret)
    return await shoot.until_failed(INFRASTRUCTURES, "local")


async def finish(*shoots: Client) -> None:
    for shoot in shoots:
        await shoot.delete(INFRASTRUCTURES, "local")
    for shoot in shoots:
        await shoot.until_gone(INFRASTRUCTURES, "local")


def nobody(plane: ControlPlane) -> bytes:
    """The kubeconfig of a user who is known, and may do nothing."""
    user = certificates.client(plane.api.ca, plane.kubeconfig.parent / "pki", rbac.user("nobody"))
    return inline(text(plane.api.url, plane.api.ca, user).encode())


@contextlib.contextmanager
def bound(plane: ControlPlane, role: str, to: str) -> Iterator[None]:
    """A role with the rights of another one, too."""
    path = f"{_RBAC}/clusterrolebindings/test:{role}-as-{to}"
    binding = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"test:{role}-as-{to}"},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": rbac.user(to)},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": rbac.user(role)}],
    }
    plane.api.apply(path, binding)
    try:
        yield
    finally:
        plane.api.request("DELETE", path).read()


@contextlib.contextmanager
def changed(plane: ControlPlane, role: str, rules: list[dict[str, Any]]) -> Iterator[None]:
    """A role with other rules than it has."""
    path = f"{_RBAC}/clusterroles/{rbac.user(role)}"
    head = {"apiVersion": f"{_GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": rbac.user(role)}}
    plane.api.apply(path, {**head, "rules": rules})
    try:
        yield
    finally:
        plane.api.apply(path, {**head, "rules": rbac.RULES[role]})


@dataclass
class Liar:
    """A server that claims to be another cluster, behind a certificate of its own authority."""

    url: str
    authority: Path
    asked: list[str] = field(default_factory=list)

    def kubeconfig(self, *authorities: Path) -> bytes:
        """The kubeconfig of a tenant's Secret. Other authorities may be named beside."""
        bundle = self.authority.with_name("bundle.crt")
        bundle.write_text("".join(one.read_text() for one in (self.authority, *authorities)))
        return inline(naming(self.url, {"certificate-authority": str(bundle)}))


@contextlib.asynccontextmanager
async def liar(folder: Path, uid: str) -> AsyncIterator[Liar]:
    """Says that its kube-system has this uid, and that it holds nothing else."""
    ca = certificates.authority(folder)
    pair = certificates.server(ca, folder, "liar", ["127.0.0.1", "localhost"])
    made = Liar("", ca.certificate)

    async def answer(request: web.Request) -> web.Response:
        made.asked.append(f"{request.method} {request.path}")
        if request.path.endswith("/kube-system"):
            return web.json_response({"metadata": {"name": "kube-system", "uid": uid}})
        if request.method == "GET":
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        return web.json_response({"metadata": {"name": "x", "uid": "lie", "resourceVersion": "1"}})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    async with webserver.serving(web.route("*", "/{path:.*}", answer), tls=context) as made.url:
        yield made
