"""Webhooks by Service work where there are nodes, and never make the API server dial other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.nodes.images import BUSYBOX
from sandbox.options import Options
from tests.support import echoclient, webhooks, worldwithnodes
from tests.support.webhooks import Escapes
from tests.support.worldwithnodes import NodeWorld
from windowbox.errors import Refused

DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/hook"


@pytest.fixture
def hook(nodes: NodeWorld, tmp_path: Path) -> Iterator[list[str]]:
    """A Service `hook`, its Pod and what answers behind it; gives the Service's addresses."""
    host = str(nodes.nodes[0].plan.v4 - 10)
    with webhooks.answering(host, nodes.api.ca, tmp_path) as port:
        nodes.api.apply(DEPLOYMENT, _relay(host, port))
        service = nodes.api.apply(webhooks.SERVICE, _service("RequireDualStack", {"app": "hook"}))
        yield service["spec"]["clusterIPs"]
        for path in (DEPLOYMENT, webhooks.SERVICE):
            nodes.api.request("DELETE", path).close()


def test_a_pod_answers_a_webhook_by_service(nodes: NodeWorld, hook: list[str]) -> None:
    link = nodes.sandbox.state.site
    with Escapes(hook, [link]) as escapes, webhooks.configured(nodes.api):
        said = echoclient.until(lambda: _asked(nodes, "answered"))
        assert "the webhook was asked" in said
        assert escapes.count() == 0
    assert [webhooks.leads(address) for address in hook] == [link, link]


@pytest.fixture(scope="module")
def without_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorld]:
    worldwithnodes.need()
    none = Options(watchers=0, workers=0, patchers=0, nodes=0)
    with worldwithnodes.opened(tmp_path_factory.mktemp("none") / "sandbox", none) as world:
        yield world


@pytest.mark.long  # that nothing is sent out: test_clusternetwork.py
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_without_nodes_webhooks_are_refused_at_once(without_nodes: NodeWorld, family: str) -> None:
    service = _service("SingleStack", None)
    service["spec"]["ipFamilies"] = [family]
    [address] = without_nodes.api.apply(webhooks.SERVICE, service)["spec"]["clusterIPs"]
    with Escapes([address], []) as escapes, webhooks.configured(without_nodes.api):
        refused, seconds = webhooks.refused(without_nodes.api)
        assert "no route to host" in refused or "network is unreachable" in refused
        assert seconds < 20  # a packet that is dropped takes all of the 30 that the webhook may take
        assert escapes.count() == 0
    assert webhooks.leads(address) == "nowhere"
    without_nodes.api.request("DELETE", webhooks.SERVICE).close()


def _asked(nodes: NodeWorld, name: str) -> str:
    try:
        said = webhooks.ask(nodes.api, name)
    except Refused as error:  # a node's proxy may hear of the Pod after we did
        raise AssertionError(str(error)) from error
    assert said
    return said


def _service(policy: str, selector: dict[str, str] | None) -> dict[str, Any]:
    ports = [{"port": 443, "targetPort": 8443}]
    spec: dict[str, Any] = {"ipFamilyPolicy": policy, "ports": ports}
    if selector:
        spec["selector"] = selector
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}, "spec": spec}


def _relay(host: str, port: int) -> dict[str, Any]:
    """A Pod that passes on to the webhook, which is a program of the test's."""
    container = {
        "name": "relay",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["nc", "-ll", "-p", "8443", "-e", "nc", host, str(port)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "hook"},
        "spec": {
            "selector": {"matchLabels": {"app": "hook"}},
            "template": {"metadata": {"labels": {"app": "hook"}}, "spec": {"containers": [container]}},
        },
    }
