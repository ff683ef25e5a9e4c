"""The initial objects of a Shoot's cluster: rights to join, and the configuration of its nodes."""

from __future__ import annotations

import json

import yaml

from sandbox.nodes import joining, nodefiles
from sandbox.servers import manifests
from sandbox.servers.apiserver import ApiServer

SECRET = "node-agent-simulator"
"""The Secret that the node agent reads in kube-system."""
FOLDER = "/var/lib/node-agent-simulator"
"""The folder that it reads on the machine."""

_KUBELET = "/var/lib/kubelet"
_REAL = f"{_KUBELET}/kubeconfig-real"
_JOINING, _NODES = "system:bootstrappers", "system:nodes"
_KUBELET_UNIT = f"""\
[Unit]
Requires=containerd.service
[Service]
EnvironmentFile=/run/node-agent-simulator.env
ExecStart=/usr/bin/kubelet --config={_KUBELET}/config.yaml --kubeconfig={_REAL} \\
    --bootstrap-kubeconfig={_KUBELET}/kubeconfig-bootstrap --node-ip=${{NODE_IP}}
Restart=always
[Install]
WantedBy=multi-user.target
"""
_KUBE_PROXY_UNIT = f"""\
[Service]
ExecStart=/usr/bin/kube-proxy --config={_KUBELET}/kube-proxy.yaml
Restart=always
[Install]
WantedBy=multi-user.target
"""


def fill(api: ApiServer, pods: str) -> None:
    """Create the objects. Idempotent. `pods` is the range of the Pods' addresses."""
    joining.bind(api, _JOINING)
    # A joining machine reads the configuration of nodes; kube-proxy uses the kubelet's credentials.
    name = {"name": SECRET, "namespace": "kube-system"}
    role = {"apiVersion": f"{joining.RBAC}/v1", "kind": "Role", "metadata": name}
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET], "verbs": ["get"]}
    texts = {
        "kubelet.yaml": json.dumps(
            {
                **nodefiles.kubelet(f"{FOLDER}/ca.crt", "/run/containerd/containerd.sock"),
                # Renewing would delay the first certificate by seconds; see sandbox/nodes/nodefiles.py.
                "rotateCertificates": False,
            }
        ),
        "kube-proxy.yaml": yaml.safe_dump(
            {**nodefiles.kube_proxy(_REAL, pods), "healthzBindAddress": "0.0.0.0:10256"}
        ),
        "kubelet.service": _KUBELET_UNIT,
        "kube-proxy.service": _KUBE_PROXY_UNIT,
    }
    for made in (
        {**role, "rules": [rule]},
        joining.binding(name, "Role", SECRET, _JOINING, _NODES),
        joining.binding({"name": "windowbox:kube-proxy"}, "ClusterRole", "system:node-proxier", _NODES),
        manifests.secret("kube-system", SECRET, texts),
    ):
        api.apply_object(made)
