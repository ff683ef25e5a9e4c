"""Real nodes serve Pods, Services and health checks as in any cluster."""

from __future__ import annotations

import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import echoclient, worldwithnodes
from tests.support.worldwithnodes import NodeWorld


@pytest.fixture(scope="module")
def echo(nodes: NodeWorld) -> Iterator[dict[str, Any]]:
    """The echo servers behind a Service of both families."""
    with nodes.exposed("everywhere", "echo", udp=(8080,), ipFamilyPolicy="RequireDualStack") as service:
        yield service


@pytest.fixture(scope="module")
def shell(nodes: NodeWorld) -> Iterator[str]:
    """The name of a Pod in which one can look around."""
    worldwithnodes.start_shell(nodes.kubeconfig, "shell")
    yield "shell"
    nodes.kubectl("delete", "pod", "shell", "--now", "--wait=false")


def test_nodes_are_ready_with_addresses_of_both_families(nodes: NodeWorld) -> None:
    found = {
        node["metadata"]["name"]: {
            a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"
        }
        for node in nodes.api.read("/api/v1/nodes")["items"]
        if {"type": "Ready", "status": "True"}.items() <= _condition(node, "Ready").items()
    }
    assert found == {node.name: {node.v4, node.v6} for node in nodes.nodes}
    assert len(found) == 3


def test_a_pod_has_an_address_of_each_family(nodes: NodeWorld, echo: dict[str, Any]) -> None:
    pods = nodes.api.read("/api/v1/namespaces/default/pods?labelSelector=app=echo")["items"]
    plans = {node.name: node.plan for node in nodes.nodes}
    for pod in pods:
        plan = plans[pod["spec"]["nodeName"]]
        v4, v6 = (entry["ip"] for entry in pod["status"]["podIPs"])
        assert v4 in map(str, plan.pods_v4.hosts())
        assert echoclient.tcp(v6, 8080).pod == pod["metadata"]["name"]
    assert {pod["spec"]["nodeName"] for pod in pods} == set(plans)


@pytest.mark.parametrize("family", ["v4", "v6"])
@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_a_node_port_answers_on_every_node(
    nodes: NodeWorld, echo: dict[str, Any], protocol: str, family: str
) -> None:
    port = worldwithnodes.node_port(echo, 8080, protocol)
    ask = echoclient.tcp if protocol == "TCP" else echoclient.udp
    for node in nodes.nodes:
        address = getattr(node, family)
        answer = echoclient.until(partial(ask, address, port, b"hello"))
        assert answer.said == b"hello"


def test_a_service_reaches_pods_of_all_nodes(nodes: NodeWorld, echo: dict[str, Any], shell: str) -> None:
    command = f"for i in $(seq 30); do nc -w 2 {echo['spec']['clusterIP']} 8080 </dev/null; done"

    def from_all_nodes() -> None:  # the proxy of the shell's node may hear of the last Pod after we did
        said = nodes.kubectl("exec", shell, "--", "sh", "-c", command)
        assert {line.split()[1] for line in said.splitlines()} == {
            f"node={node.name}" for node in nodes.nodes
        }

    echoclient.until(from_all_nodes)


def test_large_datagrams_pass_both_ways(nodes: NodeWorld, echo: dict[str, Any]) -> None:
    payload = bytes(range(250)) * 240
    answer = echoclient.until(
        lambda: echoclient.udp(nodes.nodes[0].v4, worldwithnodes.node_port(echo, 8080, "UDP"), payload)
    )
    assert answer.said == payload


def test_health_checks_show_where_endpoints_are(nodes: NodeWorld) -> None:
    service = nodes.deploy_echo(
        "local", replicas=1, service={"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    )
    pods = nodes.api.read("/api/v1/namespaces/default/pods?labelSelector=app=local")["items"]
    port = service["spec"]["healthCheckNodePort"]
    for node in nodes.nodes:
        wanted = 200 if pods[0]["spec"]["nodeName"] == node.name else 503
        echoclient.until(partial(_answers, node.v4, port, wanted))
        assert echoclient.status(node.v4, 10256) == 200
        assert echoclient.status(f"[{node.v6}]", 10256) == 200
    nodes.remove_echo("local")


def test_logs_and_exec_work(nodes: NodeWorld, shell: str) -> None:
    assert nodes.kubectl("logs", shell) == "here I am\n"
    assert nodes.kubectl("exec", shell, "--", "hostname") == "shell\n"


def test_a_node_reaps_what_the_runtime_leaves_behind(nodes: NodeWorld) -> None:
    """containerd starts each shim through a process that ends at once: the shim is nobody's child then."""
    before = len(_orphans(nodes))
    worldwithnodes.start_shell(nodes.kubeconfig, "gone")
    assert len(_orphans(nodes)) > before
    nodes.kubectl("delete", "pod", "gone", "--now")

    def as_before() -> None:
        left = _orphans(nodes)
        assert len(left) <= before, left

    echoclient.until(as_before)


def test_containers_weigh_more_than_one_process(nodes: NodeWorld) -> None:
    """Only where nothing else, as systemd's slices, shares the CPU out: else the weight is as it was."""
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    alone = {group for _, controllers, group in groups if controllers in {"", "cpu", "cpu,cpuacct"}} == {"/"}
    reported = [
        int(file.read_text())
        for file in map(Path, ("/sys/fs/cgroup/cpu/k8s.io/cpu.shares", "/sys/fs/cgroup/k8s.io/cpu.weight"))
        if file.exists()
    ]
    assert not alone or all(weight not in {100, 1024} for weight in reported)


def test_a_kubelet_refuses_requests_without_a_certificate(nodes: NodeWorld) -> None:
    context = ssl.create_default_context(cafile=str(nodes.api.ca.certificate))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"https://{nodes.nodes[0].v4}:10250/pods", timeout=5, context=context)


def _orphans(nodes: NodeWorld) -> list[str]:
    """The states of the processes that are children of a node's first one."""
    found = []
    for node in nodes.nodes:
        inside = _output("ip", "netns", "pids", node.namespace).split()
        first = next(pid for pid in inside if _output("ps", "-o", "args=", pid) == "sleep infinity\n")
        found += _output("ps", "-o", "stat=", "--ppid", first).split()
    return found


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout


def _condition(object: dict[str, Any], type: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in object["status"]["conditions"] if c["type"] == type)
    return found


def _answers(host: str, port: int, wanted: int) -> None:
    assert echoclient.status(host, port) == wanted
