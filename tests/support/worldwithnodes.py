"""A control plane with real nodes for tests, and echo servers in Pods behind Services.

For one world per package, write in its conftest.py:

    @pytest.fixture(scope="package")
    def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorld]:
        yield from worldwithnodes.fixture(tmp_path_factory, nodes=3)

It lives in a thread of its own, so tests may be plain or async, whatever the scope of their loops.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sandbox import stages
from sandbox.nodes import hostresources
from sandbox.nodes.images import BUSYBOX, ECHO
from sandbox.nodes.node import Node
from sandbox.options import Options
from sandbox.programs import binaries
from sandbox.servers.apiserver import ApiServer
from sandbox.supervisor import Supervisor
from tests.support import servers
from tests.support.guardian import guarded

T = TypeVar("T")

PATIENCE = 60.0
_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_SERVICES = "/api/v1/namespaces/default/services"
_NAMES = {"POD_NAME": "metadata.name", "NODE_NAME": "spec.nodeName"}


@dataclass
class NodeWorld:
    """A running sandbox with nodes. Its methods wait, for a minute at most; call them from any thread."""

    sandbox: Supervisor
    loop: asyncio.AbstractEventLoop
    guardian: int
    """The process that clears what is left if this one is killed."""

    @property
    def nodes(self) -> list[Node]:
        """Each has `name`, `v4`, `v6`, `plan`, `namespace` and `cut()`."""
        return self.sandbox.nodes

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return Path(self.sandbox.environment()["KUBECONFIG"])

    @property
    def api(self) -> ApiServer:
        """An administrator's client of the API server."""
        return self.sandbox.api

    def kill(self, node: Node) -> None:
        """Simulate a power loss of a node."""
        self.call(node.kill())

    def repair(self, node: Node) -> None:
        """Undo `kill` and `node.cut`, and wait until the node is ready."""
        self.call(node.repair())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the sandbox in its loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def kubectl(self, *arguments: str, stdin: str = "", patience: float = PATIENCE) -> str:
        return kubectl(self.kubeconfig, *arguments, stdin=stdin, patience=patience)

    def wait_node(self, node: Node, *, ready: bool) -> None:
        """Wait until a node is Ready, or no longer is."""
        path = f"/api/v1/nodes?fieldSelector=metadata.name={node.name}"
        for event in self.api.events(path, seconds=int(PATIENCE)):
            conditions = event["object"]["status"].get("conditions", [])
            if ready == any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                return
        raise TimeoutError(f"{node.name} did not become {'ready' if ready else 'unready'}")

    def deploy_echo(
        self,
        name: str,
        *,
        replicas: int = 3,
        tcp: Sequence[int] = (8080,),
        udp: Sequence[int] = (),
        service: Mapping[str, Any] | None = None,
        pod: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The Service `name`, before `replicas` echo servers that are ready, spread over the nodes.

        `service` and `pod` are laid over the specs of the Service (a NodePort if nothing else is said) and
        of the Pods. Ports are named `tcp-8080`, and the same outside and inside.
        """
        self.api.apply(f"{_DEPLOYMENTS}/{name}", _deployment(name, replicas, tcp, udp, pod or {}))
        found = self.api.apply(f"{_SERVICES}/{name}", _service(name, tcp, udp, service or {}))
        for event in self.api.events(f"{_DEPLOYMENTS}?fieldSelector=metadata.name={name}", seconds=60):
            status = event["object"].get("status", {})
            observed = status.get("observedGeneration") == event["object"]["metadata"]["generation"]
            if observed and status.get("readyReplicas", 0) == status.get("replicas", 0) == replicas:
                return found
        raise TimeoutError(f"{name} has not {replicas} ready Pods after a minute")

    @contextlib.contextmanager
    def exposed(
        self, name: str, app: str, *, udp: Sequence[int] = (), **spec: Any
    ) -> Iterator[dict[str, Any]]:
        """Another Service before the echo servers `app`; `spec` is laid over its own."""
        path, wanted = f"{_SERVICES}/{name}", {"selector": {"app": app}, **spec}
        yield self.api.apply(path, _service(name, (8080,), udp, wanted))
        self.api.request("DELETE", path).close()

    def remove_echo(self, name: str) -> None:
        for path in (_DEPLOYMENTS, _SERVICES):
            self.api.request("DELETE", f"{path}/{name}").close()


def kubectl(kubeconfig: Path, *arguments: str, stdin: str = "", patience: float = PATIENCE) -> str:
    answer = subprocess.run(
        [str(binaries.find("kubectl")), f"--kubeconfig={kubeconfig}", *arguments],
        input=stdin, capture_output=True, text=True, timeout=patience, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def start_shell(kubeconfig: Path, name: str) -> None:
    """Start a Pod with a shell."""
    kubectl(
        kubeconfig, "run", name, f"--image={BUSYBOX}", "--image-pull-policy=Never",
        "--command", "--", "sh", "-c", "echo here I am; exec sleep 1000",
    )  # fmt: skip
    kubectl(kubeconfig, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def node_port(service: Mapping[str, Any], port: int, protocol: str = "TCP") -> int:
    found = [p for p in service["spec"]["ports"] if p["port"] == port and p["protocol"] == protocol]
    return int(found[0]["nodePort"])


def need() -> None:
    """Skip the test where real nodes are impossible."""
    programs = (*stages.PROGRAMS, *hostresources.PROGRAMS, "kubectl")
    if reason := hostresources.impossible() or servers.missing(*programs):
        pytest.skip(f"no nodes: {reason}")


def fixture(factory: pytest.TempPathFactory, *, nodes: int, **options: Any) -> Iterator[NodeWorld]:
    """A world for a fixture. Without windowbox's own processes, unless `options` ask for them."""
    need()
    chosen = {"watchers": 0, "workers": 0, "patchers": 0, **options, "nodes": nodes}
    with opened(factory.mktemp("nodes") / "sandbox", Options.model_validate(chosen)) as world:
        yield world


@contextlib.contextmanager
def opened(folder: Path, options: Options) -> Iterator[NodeWorld]:
    """A sandbox with nodes in a thread of this process; what it made is removed even if that is killed."""
    opening: Future[NodeWorld] = Future()
    ending = threading.Event()
    with guarded() as guardian:
        thread = threading.Thread(
            target=lambda: asyncio.run(_live(folder, options, guardian, opening, ending)),
            name="world with nodes",
        )
        thread.start()
        try:
            yield opening.result(120)
        finally:
            ending.set()
            thread.join(120)


async def _live(
    folder: Path, options: Options, guardian: int, opening: Future[NodeWorld], ending: threading.Event
) -> None:
    try:
        async with Supervisor.running(folder, options, patience=90) as sandbox:
            opening.set_result(NodeWorld(sandbox, asyncio.get_running_loop(), guardian))
            await asyncio.to_thread(ending.wait)
    except BaseException as error:
        if opening.done():
            raise
        opening.set_exception(error)


def _deployment(
    name: str, replicas: int, tcp: Sequence[int], udp: Sequence[int], pod: Mapping[str, Any]
) -> dict[str, Any]:
    labels = {"app": name}
    selector = {"matchLabels": labels}
    spec = {
        "terminationGracePeriodSeconds": 1,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector,
            }
        ],
        "containers": [_container(tcp, udp)],
        **pod,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": selector,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _container(tcp: Sequence[int], udp: Sequence[int]) -> dict[str, Any]:
    return {
        "name": "echo",
        "image": ECHO,
        "imagePullPolicy": "Never",
        "args": [
            f"--tcp={','.join(map(str, tcp))}", f"--udp={','.join(map(str, udp))}", "--http=10200"
        ],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _NAMES.items()
        ],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 10200}, "periodSeconds": 1},
    }  # fmt: skip


def _service(name: str, tcp: Sequence[int], udp: Sequence[int], spec: Mapping[str, Any]) -> dict[str, Any]:
    ports = [
        {"name": f"{protocol.lower()}-{port}", "protocol": protocol, "port": port, "targetPort": port}
        for protocol, numbers in (("TCP", tcp), ("UDP", udp))
        for port in numbers
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"type": "NodePort", "selector": {"app": name}, "ports": ports, **spec},
    }
