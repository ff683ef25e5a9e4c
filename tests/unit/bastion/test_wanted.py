"""What a Bastion consists of."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from windowbox.errors import Malformed
from workers.kinds.bastion import bastionobjects

SITE = bastionobjects.site("infra-shoot--a--b", "cli-x7k2p")
LABELS = {"app": "bastion", "bastion": "cli-x7k2p"}


@rule("BA-2", "BA-6")
def test_the_secret_holds_the_user_data() -> None:
    assert bastionobjects.secret(SITE, "IyEvYmluL2Jhc2gKZWNobyBoZWxsbwo=") == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "bastion-cli-x7k2p", "namespace": "infra-shoot--a--b", "labels": LABELS},
        "data": {"userdata": "IyEvYmluL2Jhc2gKZWNobyBoZWxsbwo="},
    }


@rule("BA-2")
def test_the_pod_is_a_machine_with_the_user_data() -> None:
    pod = bastionobjects.pod(SITE, "registry/node:1")
    assert pod["metadata"]["labels"] == LABELS
    [container] = pod["spec"].pop("containers")
    assert container.pop("readinessProbe")["tcpSocket"] == {"port": "ssh"}
    assert container == {
        "name": "machine",
        "image": "registry/node:1",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "ports": [{"name": "ssh", "containerPort": 22, "protocol": "TCP"}],
        "volumeMounts": [{"name": "userdata", "mountPath": "/etc/machine"}],
    }
    secret = {"secretName": "bastion-cli-x7k2p", "defaultMode": 511}
    assert pod["spec"]["volumes"] == [{"name": "userdata", "secret": secret}]
    assert pod["spec"]["automountServiceAccountToken"] is False


@rule("BA-2", "B.5")
def test_the_service_lets_in_whom_the_bastion_names() -> None:
    service = bastionobjects.service(SITE, ["203.0.113.7/32", "2001:db8::/64"])
    assert service["spec"] == {
        "type": "LoadBalancer",
        "selector": LABELS,
        "ports": [{"name": "ssh", "port": 22, "protocol": "TCP", "targetPort": 22, "appProtocol": "ssh"}],
        "loadBalancerSourceRanges": ["203.0.113.7/32", "2001:db8::/64"],
    }


@rule("BA-2")
def test_the_policy_opens_ssh_names_and_machines() -> None:
    policy = bastionobjects.policy(SITE)
    assert policy["metadata"]["labels"] == LABELS | {"app.kubernetes.io/managed-by": "provider-local"}
    kube_system = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}

    def pods(app: str) -> dict[str, object]:
        expression = {"key": "k8s-app", "operator": "In", "values": [app]}
        return {"namespaceSelector": kube_system, "podSelector": {"matchExpressions": [expression]}}

    names, machines = policy["spec"].pop("egress")
    assert names["to"] == [
        pods("kube-dns"),
        pods("node-local-dns"),
        {"ipBlock": {"cidr": "169.254.20.10/32"}},
        {"ipBlock": {"cidr": "fd30:1319:f1e:230b::1/128"}},
    ]
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {
        ("UDP", 53), ("TCP", 53), ("UDP", 8053), ("TCP", 8053),
    }  # fmt: skip
    ssh = [{"protocol": "TCP", "port": 22}]
    assert machines == {"to": [{"podSelector": {"matchLabels": {"app": "machine"}}}], "ports": ssh}
    assert policy["spec"] == {
        "podSelector": {"matchLabels": LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": ssh}],
    }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a" * 56, id="BA-2-too-long"),
        pytest.param("a.b", id="BA-2-dots"),
    ],
)
def test_names_that_no_service_can_have_are_refused(name: str) -> None:
    with pytest.raises(Malformed, match=r"metadata\.name is"):
        bastionobjects.site("infra-a", name)


def test_the_longest_name_and_one_of_digits_are_fine() -> None:
    assert len(bastionobjects.site("infra-a", "a" * 55).name) == 63
    assert bastionobjects.site("infra-a", "1").name == "bastion-1"


@pytest.mark.parametrize("data", ["no base64", "YQ"])
def test_user_data_that_is_not_base64_is_refused(data: str) -> None:
    with pytest.raises(Malformed, match=r"spec\.userData is not base64"):
        bastionobjects.secret(SITE, data)
