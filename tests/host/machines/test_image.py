"""A machine boots in a Pod: its user data is really executed, and it joins its Shoot as a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.host.machines import handmade
from tests.host.machines.conftest import Prepared
from tests.support import echoclient
from tests.support.rules import rule
from windowbox.sandbox.nodes import iproute
from windowbox.sandbox.nodes.images import ECHO
from windowbox.sandbox.shoots import consoles, creation, waiting

UNITS = r"""#!/bin/bash
set -e
cat > /etc/systemd/system/once.service << 'EOF'
[Service]
Type=oneshot
RemainAfterExit=yes
Environment="WORD=two words" OTHER=1
ExecStartPre=-/bin/false
ExecStart=/bin/sh -c 'echo "$$1" > /once' sh "${WORD} ${OTHER}"
EOF
cat > /etc/systemd/system/again.service << 'EOF'
[Service]
ExecStart=/bin/sh -c "echo try >> /tries; \
    test $(wc -l < /tries) -ge 3 && exec sleep infinity"
Restart=on-failure
RestartSec=10ms
[Install]
WantedBy=multi-user.target
EOF
systemctl daemon-reload
systemctl restart once.service
systemctl enable again && systemctl restart --no-block again
test "$(cat /once)" = "two words 1"
until [ "$(wc -l < /tries)" = 3 ]; do sleep 0.05; done
until systemctl is-active again; do sleep 0.05; done
systemctl stop again
! systemctl is-active again
echo all is well
exit 7
"""


@pytest.fixture(scope="module")
def node(prepared: Prepared) -> Iterator[str]:
    """The name of a node of the Shoot, whose machine runs the user data of its OperatingSystemConfig."""
    handmade.make(prepared, "joins", handmade.user_data(prepared, "joins"))
    [name] = creation.wait_nodes(prepared.sandbox, prepared.shoot, 1)
    yield name
    handmade.remove(prepared, "joins")


def test_user_data_that_fails_is_told(prepared: Prepared) -> None:
    """Its exit code and last lines, where whoever made the machine looks, and on the console."""
    handmade.make(prepared, "fails", UNITS)
    ended = _pod_once(prepared, "fails", _termination)
    handmade.remove(prepared, "fails")
    told = _termination(ended)
    assert told
    assert told["exitCode"] == 7
    assert told["message"].startswith("user data ended with exit code 7\n")
    assert told["message"].endswith("all is well\n")
    _pod_gone(prepared, "fails")
    kept = list(consoles.lines(prepared.sandbox.folder / "machines", "fails"))
    assert "userdata: all is well" in kept


@rule("B4-R4")
def test_a_machine_joins_by_its_user_data(prepared: Prepared, node: str) -> None:
    assert node == "machine-joins"
    ready = _pod_once(prepared, "joins", lambda pod: pod["status"]["containerStatuses"][0]["ready"])
    found = prepared.api.read(f"/api/v1/nodes/{node}")
    assert found["status"]["addresses"][0] == {"type": "InternalIP", "address": ready["status"]["podIP"]}
    assert prepared.api.read("/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]


def test_pods_of_a_shoot_are_reached_through_a_load_balancer(prepared: Prepared, node: str) -> None:
    prepared.kubectl(
        "create", "deployment", "web", f"--image={ECHO}", "--", "/echo", "--tcp=8080", "--http=10200"
    )
    prepared.kubectl("expose", "deployment", "web", "--type=LoadBalancer", "--port=80", "--target-port=8080")
    prepared.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    services = "/api/v1/namespaces/default/services"
    service = waiting.until(
        prepared.api, services, "web", lambda one: bool(_address_of(one)), "web has no address", patience=60
    )
    answer = echoclient.until(lambda: echoclient.tcp(_address_of(service), 80, b"hello"))
    assert answer.said == b"hello"


def test_this_host_reaches_pods_of_a_shoot(prepared: Prepared, node: str) -> None:
    """By the route to their node: API servers on it dial them, for webhooks."""
    prepared.kubectl("run", "one", f"--image={ECHO}", "--command", "--", "/echo", "--tcp=8080")
    prepared.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s")
    address = prepared.api.read("/api/v1/namespaces/default/pods/one")["status"]["podIP"]
    assert echoclient.until(lambda: echoclient.tcp(address, 8080, b"hello")).said == b"hello"
    assert prepared.kubectl("logs", "one") == ""  # through the API server, from the kubelet


def test_routes_go_with_the_node(prepared: Prepared) -> None:
    handmade.make(prepared, "goes", handmade.user_data(prepared, "goes"))
    names = creation.wait_nodes(prepared.sandbox, prepared.shoot, 2)
    assert "machine-goes" in names
    pods = prepared.api.read("/api/v1/nodes/machine-goes")["spec"]["podCIDR"]
    echoclient.until(lambda: _check(pods in _routes()))
    handmade.remove(prepared, "goes")
    _pod_gone(prepared, "goes")
    prepared.kubectl("delete", "node", "machine-goes")
    echoclient.until(lambda: _check(pods not in _routes()))


def _routes() -> set[str]:
    return {str(route["dst"]) for route in iproute.asked("-4", "route", "show", "proto", "142")}


def _check(holds: bool) -> None:
    if not holds:
        raise OSError("not yet")


def _pod_once(prepared: Prepared, machine: str, holds: Any) -> dict[str, Any]:
    path = f"/api/v1/namespaces/{prepared.shoot.machines}/pods"
    name = f"machine-{machine}"
    return waiting.until(prepared.sandbox.api, path, name, holds, f"{name} is not as expected", patience=90)


def _pod_gone(prepared: Prepared, machine: str) -> None:
    path = f"/api/v1/namespaces/{prepared.shoot.machines}/pods"
    waiting.until_gone(
        prepared.sandbox.api, path, f"machine-{machine}", "the machine is not gone", patience=60
    )


def _termination(pod: dict[str, Any]) -> dict[str, Any] | None:
    for container in pod["status"].get("containerStatuses") or []:
        for state in (container["state"], container.get("lastState") or {}):
            if found := state.get("terminated"):
                return dict(found)
    return None


def _address_of(service: dict[str, Any]) -> str:
    ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or [{}]
    return str(ingress[0].get("ip") or "")
