"""Istio as Gardener deploys it, and behind its gateway the API server and the VPN of a Shoot."""

from __future__ import annotations

import base64
import json
import re
import string
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from sandbox.programs import binaries
from tests.support.helm import helm
from tools.gardener import programs
from tools.gardener.base import Base
from windowbox.secretsmanager import generation
from windowbox.secretsmanager.configs import Authority, Certificate, Usage

HOST = "api.one.local.external.local.gardener.cloud"
NAMESPACE = "shoot--local--one"
SYSTEM, INGRESS = "istio-system", "istio-ingress"
_REGISTRY = "europe-docker.pkg.dev/gardener-project/releases"
_FOLDER = Path(__file__).parent
_NETWORKING = Path("pkg/component/networking")
_LABELS = {"app": "istio-ingressgateway", "istio": "ingressgateway", "istio-role": "seed"}
_PORTS = {443: 9443, 8443: 8443, 8132: 8132, 15021: 15021}
_INGRESS: dict[str, Any] = {
    "image": "gcr.io/istio-release/proxyv2:1.29.6-distroless", "labels": _LABELS, "replicas": 1,
    "priorityClassName": "system-cluster-critical", "terminateAPIServerTLS": True,
    "ports": [{"name": f"tcp-{port}", "port": port, "targetPort": to} for port, to in _PORTS.items()],
    "httpProxy": {"enabled": True, "legacyPort": {"enabled": True, "port": 8132, "header": "Reversed-VPN"}},
}  # fmt: skip
_ISTIOD = {
    "image": "gcr.io/istio-release/pilot:1.29.6-distroless", "priorityClassName": "system-cluster-critical",
}  # fmt: skip
_LEFT_OUT = ("VerticalPodAutoscaler", "HorizontalPodAutoscaler", "PodDisruptionBudget")
_CA = Authority("ca-vpn")


def install(sandbox: Base) -> str:
    """Deploy Istio, and the parts of a Shoot behind it; returns the address of the load balancer."""
    for namespace in (SYSTEM, INGRESS, NAMESPACE):
        metadata = {"name": namespace}
        sandbox.api.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        )
    charts = _module() / _NETWORKING / "istio" / "charts" / "istio"
    kubectl(sandbox, "apply", "--server-side", "-f", str(charts / "istio-crds"))
    apply(sandbox, SYSTEM, rendered(charts / "istio-istiod", SYSTEM, _ISTIOD))
    wait(sandbox, SYSTEM, "istiod")
    apply(sandbox, INGRESS, rendered(charts / "istio-ingress", INGRESS, _INGRESS))
    wait(sandbox, INGRESS, "istio-ingressgateway")
    address = kubectl(
        sandbox, "wait", "service/istio-ingressgateway", f"--namespace={INGRESS}", "--timeout=60s",
        "--for=jsonpath={.status.loadBalancer.ingress[0].ip}",
        "--output=jsonpath={.status.loadBalancer.ingress[0].ip}",
    )  # fmt: skip
    apply(sandbox, NAMESPACE, [*_secrets(), *_control_plane(sandbox, address)])
    for name in ("kube-apiserver", "vpn-seed-server", "vpn-shoot"):
        wait(sandbox, NAMESPACE, name)
    return address


def kubectl(sandbox: Base, *arguments: str, text: str = "") -> str:
    """Its output; an AssertionError if it fails."""
    done = subprocess.run(
        [binaries.find("kubectl"), f"--kubeconfig={sandbox.kubeconfig}", *arguments],
        input=text, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply(sandbox: Base, namespace: str, objects: list[dict[str, Any]]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl(sandbox, "apply", f"--namespace={namespace}", "-f", "-", text=text)


def wait(sandbox: Base, namespace: str, deployment: str) -> None:
    kubectl(
        sandbox, "rollout", "status", f"--namespace={namespace}", f"deploy/{deployment}", "--timeout=200s"
    )


def rendered(chart: Path, namespace: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of a chart of Gardener's, without those that need more than Istio."""
    given = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    done = helm("template", "istio", str(chart), f"--namespace={namespace}", *given)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] not in _LEFT_OUT]
    for one in objects:
        if one["kind"] == "ServiceAccount":
            one["automountServiceAccountToken"] = True  # a webhook of gardener-resource-manager mounts it
        elif one["kind"] == "Deployment":
            one["spec"]["replicas"] = 1
            one["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    return objects


def _control_plane(sandbox: Base, address: str) -> list[dict[str, Any]]:
    values = {
        "registry": _REGISTRY, "namespace": NAMESPACE, "host": HOST, "address": address,
        "services": sandbox.ranges.services_v4, "nodes": f"{sandbox.plan.nodes[0].v4}/32",
        # Of both nodes: the seed's own network, too.
        "pods": ",".join(str(node.pods_v4) for node in sandbox.plan.nodes),
    }  # fmt: skip
    text = (_FOLDER / "controlplane.yaml").read_text()
    envoy = {"server.yaml": (_FOLDER / "server.yaml").read_text(), "proxy.yaml": _proxy()}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "envoy"}, "data": envoy}
    return [config, *yaml.safe_load_all(string.Template(text).substitute(values))]


def _proxy() -> str:
    """The configuration of the Envoy beside the VPN's server, as Gardener writes it."""
    secrets = "/srv/secrets/envoy-proxy"
    values = {
        "listenAddress": "0.0.0.0", "listenAddressV6": "::", "dnsLookupFamily": "ALL", "envoyPort": "9443",
        "certChain": f"{secrets}/tls.crt", "privateKey": f"{secrets}/tls.key", "caCert": f"{secrets}/ca.crt",
        "metricsPort": "15000",
    }  # fmt: skip
    template = _module() / _NETWORKING / "vpn" / "envoy" / "templates" / "envoy.yaml.tpl"
    return re.sub(r"{{ \.(\w+) }}", lambda found: values[found[1]], template.read_text())


def _secrets() -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    authority = generation.authority(_CA, _CA.name, now)
    key = subprocess.run(
        ["openvpn", "--genkey", "secret", "/dev/stdout"], capture_output=True, timeout=20, check=True
    )
    made = {"tlsauth": {"vpn.tlsauth": key.stdout}}
    for name, config in {
        "server": Certificate("server", "vpn-seed-server", _CA.name, Usage.SERVER, dns_names=(HOST,)),
        "client": Certificate("client", "vpn-shoot-client", _CA.name, Usage.CLIENT),
    }.items():
        data = generation.certificate(config, authority, now)
        made[name] = {**data, "ca.crt": authority["ca.crt"]}
    return [
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "data": {part: base64.b64encode(value).decode() for part, value in data.items()},
        }
        for name, data in made.items()
    ]  # fmt: skip


def _module() -> Path:
    return programs.source("github.com/gardener/gardener", programs.GARDENER)
