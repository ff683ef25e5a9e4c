"""`helm install` on a real node: everything in Pods, and what users see of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address, ip_network

import pytest

from sandbox.shipped import EXAMPLES
from tests.support import echoclient, release, releasedshoot
from tests.support.release import Release

# Manifests, rights, settings and values: tests/api/chart. What the roles do: all other tests.
pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shoot(installed: Release) -> Iterator[str]:
    with releasedshoot.shoot(installed.node) as namespace:
        yield namespace


def test_a_record_resolves_and_is_traced(installed: Release) -> None:
    said = installed.test()
    made = re.search(r"DNSRecord (\S+) is created", said)
    assert made, said
    assert "Succeeded" in installed.run("trace", "dnsrecord", made[1])
    assert installed.restarts() == {}


def test_a_load_balancer_takes_tcp_and_udp(installed: Release) -> None:
    node = installed.node
    node.deploy_echo("web", replicas=1, udp=(8080,), service={"type": "LoadBalancer"})
    wanted = "--for=jsonpath={.status.loadBalancer.ingress[0].ip}"
    node.kubectl("wait", "service/web", wanted, "--timeout=60s")
    [ingress] = node.api.read("/api/v1/namespaces/default/services/web")["status"]["loadBalancer"]["ingress"]
    assert ip_address(ingress["ip"]) in ip_network(release.balancers(node))
    answer = echoclient.until(partial(echoclient.tcp, ingress["ip"], 8080, b"hello"), patience=60)
    assert (answer.said, answer.node) == (b"hello", "node-1")
    large = bytes(60_000)  # fragmented on its way and back
    assert echoclient.until(partial(echoclient.udp, ingress["ip"], 8080, large), patience=60).said == large
    node.kubectl("delete", "service/web", "deployment/web", "--timeout=60s")


def test_an_infrastructure_becomes_a_namespace_with_policies(installed: Release, shoot: str) -> None:
    node = installed.node
    node.kubectl("apply", "--filename=-", stdin=(EXAMPLES / "infrastructure.yaml").read_text())
    succeeded = "--for=jsonpath={.status.lastOperation.state}=Succeeded"
    node.kubectl("wait", "infrastructure/one", f"--namespace={shoot}", succeeded, "--timeout=60s")
    found = json.loads(node.kubectl("get", "networkpolicies", f"--namespace=infra-{shoot}", "--output=json"))
    assert "provider-local-deny-all" in [one["metadata"]["name"] for one in found["items"]]


def test_the_api_server_calls_webhooks_through_their_service(installed: Release, shoot: str) -> None:
    path = f"/apis/apps/v1/namespaces/{shoot}/deployments"
    assert releasedshoot.is_changed(installed.node.api.create(path, releasedshoot.scheduler(shoot)))


def test_metrics_show_versions_and_enabled_pools(installed: Release) -> None:
    def check() -> None:
        assert _supported(installed.metrics("run")) == {("Kubernetes", True)}

    echoclient.until(check, patience=60)
    pools = set(re.findall(r'windowbox_queue_waiting{pool="([a-z-]+)"}', installed.metrics("run")))
    assert "ingress" not in pools
    assert {"dnsrecord", "exposure", "infrastructure"} <= pools


def _supported(metrics: str) -> set[tuple[str, bool]]:
    """Components with a version in the metrics, and whether windowbox supports it."""
    found = re.findall(r'^windowbox_version_supported{component="(\w+)",.*} (\S+)$', metrics, re.MULTILINE)
    return {(component, float(supported) == 1) for component, supported in found}
