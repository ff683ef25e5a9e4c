"""Gardener's cloud-controller-manager-local in a control plane, and its configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from windowbox.models.refs import DEPLOYMENTS, Resource
from workers.core.owned import managedresources, ownerindex
from workers.core.owned.manifests import Manifest, manifest
from workers.kinds.controlplane import controlplanerights
from workers.kinds.controlplane.controlplaneaccess import CCM_SECRET
from workers.kinds.controlplane.controlplanesite import Site

NAME = controlplanerights.CCM
SERVER_SECRET = f"{NAME}-server"
"""The config of the generated secret with its certificate."""

_CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
_CONFIG = "cloud-provider-config"
_SECRETS = "/var/run/secrets/gardener.cloud"
_KUBECONFIG = f"{_SECRETS}/shoot/generic-kubeconfig/kubeconfig"
_PROVIDER = f"{_SECRETS}/cloudprovider"
_CONFIG_FOLDER = "/etc/kubernetes/cloudprovider"
_CERTIFICATE = f"/var/lib/{SERVER_SECRET}"
_DOCKER = "/var/run/docker.sock"
_PORT = 10258
_LABELS = {"app": "kubernetes", "role": NAME}
_CIPHERS = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
)


def configuration(site: Site, balancer_image: str | None) -> Manifest:
    """The ConfigMap `cloud-provider-config`."""
    content: dict[str, Any] = {
        "apiVersion": "local.provider.gardener.cloud/v1alpha1",
        "kind": "CloudProviderConfig",
    }
    if site.shoot.managed_infrastructure:
        namespace = ownerindex.infrastructure_namespace(site.shoot.technical_id)
        content["runtimeCluster"] = {"kubeconfig": f"{_PROVIDER}/kubeconfig", "namespace": namespace}
    if balancer_image:
        content["loadBalancer"] = {"image": balancer_image}
    data = {"config.yaml": yaml.safe_dump(content, sort_keys=False)}
    return manifest(_CONFIG_MAPS, _CONFIG, site.namespace, data=data)


def objects(
    site: Site, image: str, configuration: Manifest, server_secret: str, replicas: int
) -> list[Manifest]:
    """The Deployment and its account; `server_secret` is the name of the Secret with its certificate."""
    made = [
        controlplanerights.service_account(NAME, site.namespace, _LABELS),
        _deployment(site, image, configuration, server_secret, replicas),
    ]
    if site.shoot.managed_infrastructure:
        pods = controlplanerights.rule("", ["pods"], ("get", "list", "watch"))
        account = controlplanerights.subject(NAME, site.namespace)
        made += [
            controlplanerights.role(NAME, site.namespace, [pods]),
            controlplanerights.role_binding(NAME, site.namespace, NAME, [account]),
        ]
    return made


def pod_labels(site: Site) -> dict[str, str]:
    """NetworkPolicies select by these labels what the Pod may reach."""
    managed, reached = site.shoot.managed_infrastructure, ["networking.gardener.cloud/to-dns"]
    if site.hosted:
        reached.append("networking.resources.gardener.cloud/to-kube-apiserver-tcp-443")
        networks = "to-private-networks" if managed else "to-runtime-apiserver"
        reached.append(f"networking.gardener.cloud/{networks}")
    else:
        reached.append("networking.gardener.cloud/to-apiserver")
        reached += ["networking.gardener.cloud/to-public-networks"] if managed else []
    labels = {"gardener.cloud/role": "controlplane", "maintenance.gardener.cloud/restart": "true", **_LABELS}
    return labels | dict.fromkeys(reached, "allowed")


def _deployment(
    site: Site, image: str, configuration: Manifest, server_secret: str, replicas: int
) -> Manifest:
    data = {key: value.encode() for key, value in configuration["data"].items()}
    annotations = {f"checksum/configmap-{_CONFIG}": managedresources.checksum(data)}
    volumes, mounts = _volumes(site, server_secret)
    container: dict[str, Any] = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": _arguments(site),
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "scheme": "HTTPS", "port": _PORT},
            "initialDelaySeconds": 15,
            "periodSeconds": 10,
            "timeoutSeconds": 15,
            "successThreshold": 1,
            "failureThreshold": 2,
        },
        "ports": [{"containerPort": _PORT, "name": "metrics", "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsUser": 0,
            "runAsGroup": 0,
        },
        "volumeMounts": mounts,
    }
    pod = {
        "metadata": {"annotations": annotations, "labels": pod_labels(site)},
        "spec": {
            "priorityClassName": "gardener-system-300",
            "serviceAccountName": NAME,
            # The ServiceAccount has none mounted; it watches machines, unless another kubeconfig says where.
            "automountServiceAccountToken": True,
            "containers": [container],
            "volumes": volumes,
        },
    }
    spec = {
        "replicas": replicas,
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": _LABELS},
        "template": pod,
    }
    labels = {**_LABELS, "high-availability-config.resources.gardener.cloud/type": "controller"}
    return manifest(DEPLOYMENTS, NAME, site.namespace, labels=labels, spec=spec)


def _arguments(site: Site) -> list[str]:
    return [
        "--cloud-provider=local",
        f"--cloud-config={_CONFIG_FOLDER}/config.yaml",
        f"--cluster-name={site.shoot.technical_id}",
        f"--kubeconfig={_KUBECONFIG}",
        f"--authentication-kubeconfig={_KUBECONFIG}",
        f"--authorization-kubeconfig={_KUBECONFIG}",
        "--leader-elect=true",
        f"--secure-port={_PORT}",
        f"--tls-cert-file={_CERTIFICATE}/tls.crt",
        f"--tls-private-key-file={_CERTIFICATE}/tls.key",
        f"--tls-cipher-suites={','.join(_CIPHERS)}",
        "--controllers=service",
        "--concurrent-service-syncs=10",
        "--use-service-account-credentials",
        "--v=2",
    ]


def _volumes(site: Site, server_secret: str) -> tuple[list[Any], list[Any]]:
    """Volumes, and where they are mounted."""
    sources = [
        _projected(site.generic_kubeconfig, "kubeconfig"),
        _projected(CCM_SECRET, "token"),
    ]
    found: list[tuple[str, str, Mapping[str, Any]]] = [
        (
            "kubeconfig",
            _KUBECONFIG.rpartition("/")[0],
            {"projected": {"defaultMode": 420, "sources": sources}},
        ),
        (_CONFIG, _CONFIG_FOLDER, {"configMap": {"name": _CONFIG}}),
        (SERVER_SECRET, _CERTIFICATE, {"secret": {"secretName": server_secret}}),
        ("docker-socket", _DOCKER, {"hostPath": {"path": _DOCKER, "type": "Socket"}}),
    ]
    if site.shoot.managed_infrastructure:
        found.append(("cloudprovider", _PROVIDER, {"secret": {"secretName": "cloudprovider"}}))
    volumes = [{"name": name, **source} for name, _, source in found]
    mounts = [
        {"name": name, "mountPath": path} | ({} if name == "docker-socket" else {"readOnly": True})
        for name, path, _ in found
    ]
    return volumes, mounts


def _projected(secret: str, key: str) -> dict[str, Any]:
    return {"secret": {"name": secret, "items": [{"key": key, "path": key}], "optional": False}}
