"""A garden beside an installation, and gardener-operator's controllers.

Its API server has the store of the sandbox, so objects are the same. What makes it another cluster is that it
finds Services by name, and is reached with tokens that Gardener's resource manager requests there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from sandbox import processes
from sandbox.children import Child
from sandbox.servers import kubeconfigs, resourcemanager
from sandbox.servers.apiserver import ApiServer
from tests.support import installing, release, servers, standins
from tests.support.installing import DONE, GARDEN, MANIFESTS, TOKEN_KUBECONFIG
from tests.support.worldwithnodes import NodeWorld

PROJECT = "garden-local"
EXTENSION = "extensions.operator.gardener.cloud/provider-local"
KINDS = (*installing.KINDS, *standins.KINDS)
_SERVICE = "gardener-extension-admission-local"
_GARDENS = "/apis/operator.gardener.cloud/v1alpha1/gardens"
_TOKEN = "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/token"
"""Where gardener-operator mounts it."""


@dataclass(frozen=True)
class VirtualGarden:
    """Its API server, and the runtime cluster with the Pods of its admission."""

    node: NodeWorld
    api: ApiServer
    hosts: Path
    """What this API server has as /etc/hosts."""

    def tell_of_service(self) -> None:
        """Have the API server find the Service of the admission by its name, as cluster DNS would."""
        service = self.node.api.read(f"/api/v1/namespaces/garden/services/{_SERVICE}")
        with self.hosts.open("a") as file:  # the file is mounted: another one in its place would not be seen
            file.write(f"{service['spec']['clusterIP']} {_SERVICE}.garden\n")


@contextlib.contextmanager
def opened(node: NodeWorld, folder: Path) -> Iterator[VirtualGarden]:
    """A garden whose Extension is installed; it is deleted in the end, with all that belongs to it."""
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    child = _apiserver(node, hosts)
    garden = VirtualGarden(node, ApiServer(_url(child), node.api.ca, node.api.user), hosts)
    with contextlib.ExitStack() as stack:
        stack.enter_context(servers.running(child, folder))
        stack.enter_context(_kinds(node))
        _prepare(garden, folder)
        kubeconfig = folder / "garden.kubeconfig"
        kubeconfig.write_text(node.kubeconfig.read_text().replace(node.api.url, garden.api.url))
        for name, target, class_ in (("runtime", node.kubeconfig, "seed"), ("virtual", kubeconfig, "")):
            place = folder / name
            place.mkdir()
            manager = resourcemanager.child(place, node.kubeconfig, target, class_, namespaces=("garden",))
            stack.enter_context(servers.running(manager, place))
        stack.enter_context(_operator(node, folder))
        yield garden
        node.kubectl("delete", EXTENSION, "--timeout=170s", patience=180)
        for kind in ("mutating", "validating"):  # they go with the namespace that owns them
            gone = f"{kind}webhookconfiguration/{_SERVICE}"
            node.kubectl("wait", gone, "--for=delete", "--timeout=50s")


def _apiserver(node: NodeWorld, hosts: Path) -> Child:
    """Another API server on the store of the sandbox, in a mount namespace with a hosts file of its own."""
    running = Path(f"/proc/{node.sandbox.state.children['kube-apiserver'].pid}/cmdline").read_text()
    own = re.compile("--(secure-port|endpoint-reconciler-type|audit)")
    arguments = [one for one in running.split("\0")[:-1] if not own.match(one)]
    port = processes.free_port()
    [issuer] = [one.partition("=")[2] for one in arguments if one.startswith("--service-account-issuer=")]
    arguments += [
        f"--secure-port={port}",
        f"--api-audiences={issuer},gardener",  # tokens for gardens are for this audience
        "--endpoint-reconciler-type=none",  # the Service `kubernetes` leads to the first one only
    ]
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    first = node.sandbox.api
    host = first.url.removeprefix("https://").rpartition(":")[0]
    return Child(
        "garden-apiserver",
        ["unshare", "--mount", "sh", "-c", script, str(hosts), *arguments],
        ready=ApiServer(f"https://{host}:{port}", first.ca, first.user).ready,
        port=port,
        host=host,
    )


def _url(child: Child) -> str:
    return f"https://{child.host}:{child.port}"


@contextlib.contextmanager
def _kinds(node: NodeWorld) -> Iterator[None]:
    standins.define(node.api, KINDS)
    try:
        yield
    finally:
        standins.remove(node.api, KINDS)


def _prepare(garden: VirtualGarden, folder: Path) -> None:
    """What gardener-operator has made before, and finds."""
    api = garden.node.api
    for name in ("garden", PROJECT):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        api.apply(f"/api/v1/namespaces/{name}", body)
    for name in installing.CLASSES:
        priority = {"metadata": {"name": name}, "value": 1000}
        api.create("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    api.create(_GARDENS, GARDEN)
    api.merge(f"{_GARDENS}/local/status", {"status": {"lastOperation": DONE}})
    generic = folder / "generic.kubeconfig"
    generic.write_text(kubeconfigs.text(garden.api.url, api.ca, "in a file"))
    content = yaml.safe_load(kubeconfigs.inline(generic))
    content["users"][0]["user"] = {"tokenFile": _TOKEN}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TOKEN_KUBECONFIG},
        "stringData": {"kubeconfig": yaml.safe_dump(content)},
    }
    api.create("/api/v1/namespaces/garden/secrets", secret)


@contextlib.contextmanager
def _operator(node: NodeWorld, folder: Path) -> Iterator[None]:
    """gardener-operator's controllers, and deploy/gardener/extension.yaml with an image that the node has."""
    charts, manifest = folder / "charts", folder / "extension.yaml"
    charts.mkdir()
    installing.bring_charts(charts)
    extension = yaml.safe_load((MANIFESTS / "extension.yaml").read_text())
    spread = {"webhooks": {"spread": 2}}
    extension["spec"]["deployment"]["admission"]["values"] = {"image": release.IMAGE, "settings": spread}
    manifest.write_text(yaml.safe_dump(extension))
    log = folder / "operator.log"
    command = installing.command("operator", node.kubeconfig, charts, manifest)
    process = processes.start(command, log)
    try:
        node.kubectl("wait", EXTENSION, "--for=create", "--timeout=60s")
        try:
            node.kubectl("wait", EXTENSION, "--for=condition=Installed", "--timeout=170s", patience=180)
        except AssertionError as error:
            pods = node.kubectl("get", "pods,managedresources", "--namespace=garden", "--output=yaml")
            raise AssertionError(f"{error}\n{log.read_text()}\n{pods}") from error
        yield
    finally:
        servers.end(process)
