"""The control plane of a cluster: etcd, API server, controllers, scheduler."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import yaml

from sandbox import files, processes
from sandbox.children import Child
from sandbox.servers import certificates, kubeconfigs
from sandbox.servers.apiserver import ApiServer
from sandbox.servers.certificates import Pair
from sandbox.servers.ranges import UNROUTED, ClusterNetwork

LOOPBACK = "127.0.0.1"
_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_HOSTS = (
    "127.0.0.1", "localhost",
    "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
)  # fmt: skip
_CONTROLLERS = (
    "namespace-controller", "garbage-collector-controller", "serviceaccount-controller",
    "serviceaccount-token-controller", "root-ca-certificate-publisher-controller", "resourcequota-controller",
    "clusterrole-aggregation-controller", "deployment-controller", "replicaset-controller",
    "endpointslice-controller", "job-controller", "certificatesigningrequest-signing-controller",
    "certificatesigningrequest-approving-controller", "certificatesigningrequest-cleaner-controller",
    "bootstrap-signer-controller", "token-cleaner-controller",
)  # fmt: skip
"""The controllers that act on objects alone. windowbox itself serves load balancers."""
_NODE_CONTROLLERS = (
    "node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
    "endpoints-controller", "endpointslice-mirroring-controller", "daemonset-controller",
    "statefulset-controller", "ttl-after-finished-controller", "persistentvolume-binder-controller",
    "persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller",
    "disruption-controller",
)  # fmt: skip
"""Controllers with work only where there are nodes."""
_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(frozen=True)
class Identities:
    """The users of the control plane, each with a certificate of the sandbox's authority."""

    ca: Pair
    host: str
    """The address of the API server."""
    network: ClusterNetwork
    server: Pair
    admin: Pair
    controllers: Pair
    scheduler: Pair
    kubelet_client: Pair
    """The API server's certificate for requests to kubelets, for logs and exec."""
    service_accounts: Path


def identities(folder: Path, host: str = LOOPBACK, network: ClusterNetwork = UNROUTED) -> Identities:
    """The identities in `folder`, created if there are none yet."""
    ca = certificates.authority(folder)
    inside = str(network.ranges.services_v4[1])
    suffix = "" if host == LOOPBACK else f"-{host}"
    return Identities(
        ca=ca,
        host=host,
        network=network,
        server=certificates.server(ca, folder, f"kube-apiserver{suffix}", [host, inside, *_HOSTS]),
        scheduler=certificates.client(ca, folder, "system:kube-scheduler"),
        kubelet_client=certificates.client(ca, folder, "kubelet-client", groups=["system:masters"]),
        admin=certificates.client(ca, folder, "admin", groups=["system:masters"]),
        controllers=certificates.client(ca, folder, "system:kube-controller-manager"),
        service_accounts=certificates.signing_key(folder / "service-accounts.key"),
    )


def api(identity: Identities, port: int) -> ApiServer:
    return ApiServer(f"https://{identity.host}:{port}", identity.ca, identity.admin)


def etcd(program: Path, data: Path, port: int, peer_port: int) -> Child:
    url, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    # Without fsync, a power failure may lose the data of the sandbox; with it, a busy disk delays all writes.
    return Child(
        "etcd",
        [
            str(program), "--name=sandbox", f"--data-dir={data}", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls={url}", f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=sandbox={peer}",
        ],
        ready=lambda: healthy(f"{url}/health"),
        port=port,
    )  # fmt: skip


def apiserver(
    program: Path,
    identity: Identities,
    port: int,
    etcd_port: int,
    extra: Sequence[str] = (),
    *,
    verify_kubelets: bool = True,
) -> Child:
    """`verify_kubelets`: whether their serving certificates are of the cluster's authority."""
    # Without an advertised address of its own the server looks for a default route, which a laptop in a
    # train does not have; and it must not register loopback, which is refused in an EndpointSlice.
    services = identity.network.ranges
    reconciler = "none" if identity.host == LOOPBACK else "lease"
    return Child(
        "kube-apiserver",
        [
            str(program), f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            f"--bind-address={identity.host}", f"--advertise-address={identity.host}",
            f"--endpoint-reconciler-type={reconciler}",
            f"--secure-port={port}",
            f"--service-cluster-ip-range={services.services_v4},{services.services_v6}",
            f"--tls-cert-file={identity.server.certificate}",
            f"--tls-private-key-file={identity.server.key}",
            f"--client-ca-file={identity.ca.certificate}", "--anonymous-auth=false",
            f"--service-account-issuer=https://127.0.0.1:{port}",
            f"--service-account-key-file={identity.service_accounts}",
            f"--service-account-signing-key-file={identity.service_accounts}",
            *([f"--kubelet-certificate-authority={identity.ca.certificate}"] if verify_kubelets else []),
            f"--kubelet-client-certificate={identity.kubelet_client.certificate}",
            f"--kubelet-client-key={identity.kubelet_client.key}",
            # Machines of Shoots are privileged Pods.
            "--authorization-mode=Node,RBAC", "--allow-privileged", "--enable-bootstrap-token-auth",
            "--kubelet-preferred-address-types=InternalIP", *extra,
        ],
        ready=api(identity, port).ready,
        port=port,
        host=identity.host,
        env=identity.network.environment(),
    )  # fmt: skip


def controllers(
    program: Path,
    identity: Identities,
    kubeconfig: Path,
    port: int,
    api_port: int,
    *,
    nodes: bool = False,
    pods: IPv4Network | None = None,
) -> Child:
    """`pods`: the range of which each node gets a part for its Pods."""
    url = api(identity, api_port).url
    files.write_private(kubeconfig, kubeconfigs.text(url, identity.ca, identity.controllers))
    names = (
        *_CONTROLLERS,
        *(_NODE_CONTROLLERS if nodes else ()),
        *(["node-ipam-controller"] if pods else ()),
    )
    allocating = ["--allocate-node-cidrs", f"--cluster-cidr={pods}", "--node-cidr-mask-size=24"]
    return Child(
        "kube-controller-manager",
        [
            str(program), f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={port}",
            f"--cert-dir={kubeconfig.parent / 'controller-manager'}", "--leader-elect=false",
            # Kubelets hold leases of 8 s: a node is NotReady after it has failed to renew two.
            f"--controllers={','.join(names)}", "--node-monitor-period=1s", "--node-monitor-grace-period=16s",
            "--use-service-account-credentials",
            # It first creates an account for each controller. The default of 20 requests a second would delay
            # the first certificates by two seconds.
            "--kube-api-burst=200",
            f"--service-account-private-key-file={identity.service_accounts}",
            f"--root-ca-file={identity.ca.certificate}",
            f"--cluster-signing-cert-file={identity.ca.certificate}",
            f"--cluster-signing-key-file={identity.ca.key}", *(allocating if pods else ()),
        ],
        # No Pod can be created before its account exists.
        ready=lambda: processes.accepts(port) and (not nodes or bool(api(identity, api_port).find(_ACCOUNT))),
        port=port,
    )  # fmt: skip


def scheduler(program: Path, identity: Identities, kubeconfig: Path, port: int, api_port: int) -> Child:
    url = api(identity, api_port).url
    files.write_private(kubeconfig, kubeconfigs.text(url, identity.ca, identity.scheduler))
    return Child(
        "kube-scheduler",
        [
            str(program), f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={port}",
            f"--cert-dir={kubeconfig.parent / 'scheduler'}", "--leader-elect=false",
        ],
        ready=lambda: processes.accepts(port),
        port=port,
    )  # fmt: skip


def audit_arguments(folder: Path) -> list[str]:
    """Write a line about every request to `folder`/audit.log: without bodies, which cost too much."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    }
    path = folder / "audit-policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    return [f"--audit-policy-file={path}", f"--audit-log-path={folder / 'audit.log'}"]


def healthy(url: str) -> bool:
    try:
        with _WITHOUT_PROXY.open(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
