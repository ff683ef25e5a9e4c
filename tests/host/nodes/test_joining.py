"""TLS bootstrap of the kubelets of real nodes."""

from __future__ import annotations

import base64
import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from sandbox import ownership
from sandbox.options import Options
from sandbox.servers.apiserver import ApiServer
from sandbox.servers.certificates import Pair
from tests.support import kubeletrequests, livefiles, worldwithnodes
from tests.support.cases import cases
from tests.support.worldwithnodes import NodeWorld

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NEWCOMERS = "system:bootstrappers:windowbox"
ONE_NODE = Options(watchers=0, workers=0, patchers=0, nodes=1)


def test_a_kubelet_gets_its_certificate_with_the_token(nodes: NodeWorld) -> None:
    asked = {
        base64.b64decode(request["status"]["certificate"]): request["spec"]
        for request in nodes.api.read(REQUESTS)["items"]
    }
    for node in nodes.nodes:
        path = _certificate(nodes, node.name)
        user = yaml.safe_load(_file(nodes, node.name, "kubelet").read_text())["users"][0]["user"]
        assert user == {"client-certificate": str(path), "client-key": str(path)}
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        spec = asked[certificate.public_bytes(serialization.Encoding.PEM)]
        assert spec["signerName"] == kubeletrequests.CLIENT
        assert spec["username"] == f"system:bootstrap:{_token(nodes)[0]}"
        assert NEWCOMERS in spec["groups"]
        certificate.verify_directly_issued_by(
            x509.load_pem_x509_certificate(nodes.api.ca.certificate.read_bytes())
        )
        review = _review("SelfSubjectReview", "authentication.k8s.io/v1")
        known = _as_node(nodes, node.name).create(WHO_AM_I, review)["status"]["userInfo"]
        assert known["username"] == f"system:node:{node.name}"


@cases(
    "verb group resource may",
    ("ask", "create", "certificates.k8s.io", "certificatesigningrequests", True),
    ("hear-the-answer", "get", "certificates.k8s.io", "certificatesigningrequests", True),
    ("approve", "update", "certificates.k8s.io", "certificatesigningrequests/approval", False),
    ("read-secrets", "get", "", "secrets", False),
    ("list-nodes", "list", "", "nodes", False),
    ("make-nodes", "create", "", "nodes", False),
    ("list-pods", "list", "", "pods", False),
    ("read-services", "get", "", "services", False),
)
def test_a_bootstrap_token_only_requests_certificates(
    nodes: NodeWorld, verb: str, group: str, resource: str, may: bool
) -> None:
    said = worldwithnodes.kubectl(
        _file(nodes, "node-1", "bootstrap"), "create", f"--raw={REVIEWS}", "--filename=-",
        stdin=json.dumps(_may(verb, group, resource)),
    )  # fmt: skip
    assert json.loads(said)["status"]["allowed"] is may


def test_a_bootstrap_token_expires_and_grants_nothing_more(nodes: NodeWorld) -> None:
    name, _ = _token(nodes)
    secret = nodes.api.read(f"{SECRETS}/bootstrap-token-{name}")
    assert secret["type"] == "bootstrap.kubernetes.io/token"
    data = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert {key for key in data if key.startswith("usage-")} == {"usage-bootstrap-authentication"}
    assert data["auth-extra-groups"] == NEWCOMERS
    left = datetime.datetime.fromisoformat(data["expiration"]) - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta() < left <= datetime.timedelta(hours=1)


def test_the_token_stays_in_private_kubelet_files(nodes: NodeWorld) -> None:
    secret = _token(nodes)[1]
    folder = nodes.sandbox.folder
    reported = livefiles.below(folder, without=frozenset({"etcd", "containerd"}))
    holders = [path for path in reported if secret.encode() in livefiles.read(path)]
    assert sorted(holders) == [_file(nodes, node.name, "bootstrap") for node in nodes.nodes]
    assert {path.stat().st_mode & 0o777 for path in holders} == {0o600}
    assert (folder / "logs" / "node-1" / "kubelet.log") in reported
    assert (folder / "logs" / "kube-apiserver.log") in reported


def test_the_token_is_in_no_argument_or_environment(nodes: NodeWorld) -> None:
    secret = _token(nodes)[1].encode()
    mark = nodes.sandbox.state.mark
    mine = [process.pid for process, found in ownership.marked().items() if found == mark]
    assert mine
    reported = [Path(f"/proc/{pid}/{name}") for pid in mine for name in ("cmdline", "environ")]
    assert [path for path in reported if secret in livefiles.read(path)] == []


def test_a_node_may_renew_its_own_certificate(nodes: NodeWorld) -> None:
    node = _as_node(nodes, "node-1")
    name = node.create(REQUESTS, kubeletrequests.request("node-1", generateName="renewal-"))["metadata"][
        "name"
    ]
    for event in nodes.api.events(f"{REQUESTS}?fieldSelector=metadata.name={name}", seconds=60):
        if certificate := event["object"]["status"].get("certificate"):
            break
    else:
        raise TimeoutError(f"{name} was not signed within a minute")
    found = x509.load_pem_x509_certificate(base64.b64decode(certificate))
    assert found.subject.rfc4514_string() == "CN=system:node:node-1,O=system:nodes"
    for whose, may in (("selfnodeclient", True), ("nodeclient", False)):
        review = _may("create", "certificates.k8s.io", f"certificatesigningrequests/{whose}")
        assert node.create(REVIEWS, review)["status"]["allowed"] is may


@pytest.mark.long  # test_a_node_may_renew_its_own_certificate, test_a_node_returns_with_its_pods
@pytest.mark.slow
def test_a_joined_node_returns_without_a_token(tmp_path: Path) -> None:
    worldwithnodes.need()
    folder = tmp_path / "sandbox"
    with worldwithnodes.opened(folder, ONE_NODE) as first:
        token = f"bootstrap-token-{_token(first)[0]}"
        asked = _names(first, REQUESTS)
        first.api.request("DELETE", f"{SECRETS}/{token}").close()
    assert len(asked) == 1
    with worldwithnodes.opened(folder, ONE_NODE) as second:
        [node] = second.nodes
        second.kill(node)
        second.repair(node)
        assert _names(second, REQUESTS) == asked
        assert not any(name.startswith("bootstrap-token-") for name in _names(second, SECRETS))
        assert not _file(second, "node-1", "bootstrap").exists()
        worldwithnodes.start_shell(second.kubeconfig, "shell")
        assert second.kubectl("logs", "shell") == "here I am\n"


def _certificate(world: NodeWorld, node: str) -> Path:
    return world.sandbox.folder / "kubelets" / node / "kubelet-client-current.pem"


def _file(world: NodeWorld, node: str, name: str) -> Path:
    return world.sandbox.folder / "nodes" / node / f"{name}.kubeconfig"


def _token(world: NodeWorld) -> tuple[str, str]:
    """Both parts of the token: the first is no secret."""
    user = yaml.safe_load(_file(world, "node-1", "bootstrap").read_text())["users"][0]["user"]
    assert list(user) == ["token"]
    name, _, secret = user["token"].partition(".")
    return name, secret


def _as_node(world: NodeWorld, node: str) -> ApiServer:
    path = _certificate(world, node)
    return replace(world.api, user=Pair(path, path))


def _names(world: NodeWorld, path: str) -> set[str]:
    return {item["metadata"]["name"] for item in world.api.read(path)["items"]}


def _may(verb: str, group: str, resource: str) -> dict[str, Any]:
    kind, _, part = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "subresource": part, "namespace": ""}
    review = _review("SelfSubjectAccessReview", "authorization.k8s.io/v1")
    return review | {"spec": {"resourceAttributes": attributes}}


def _review(kind: str, version: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind}
