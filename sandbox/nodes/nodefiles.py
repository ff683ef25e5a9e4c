"""Configuration files of the programs of a node."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml

from sandbox import files as whole
from sandbox import processes
from sandbox.nodes import images
from sandbox.nodes.addresses import NodePlan, Plan
from sandbox.nodes.joining import Token
from sandbox.processes import ProcessId
from sandbox.servers import certificates, kubeconfigs
from sandbox.servers.apiserver import ApiServer
from sandbox.servers.certificates import Pair

OFF = "off"
_EVICT_NEVER = dict.fromkeys(
    ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"
)


def kubelet(ca: str, socket: str) -> dict[str, Any]:
    """For clients that the authority in the file `ca` has signed, and the containerd at `socket`."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": ca},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{socket}",
        # The kubelet shares this machine: it must not change kernel settings or require swap off.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "resolvConf": "",
        # Images cannot be pulled, so none may be garbage-collected.
        "evictionHard": _EVICT_NEVER,
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        # A dead node should be noticed within seconds, not within a minute.
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "5s",
    }


def kube_proxy(kubeconfig: str, pods: str) -> dict[str, Any]:
    """`pods`: the addresses of Pods, which are not masqueraded."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "mode": "nftables",
        # The default of once a second delays changes by up to a second.
        "nftables": {"minSyncPeriod": "100ms"},
        "clusterCIDR": pods,
        "detectLocalMode": "ClusterCIDR",
        "metricsBindAddress": "127.0.0.1:10249",
        # These are settings of the whole machine.
        "conntrack": {
            "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"
        },
        "oomScoreAdj": 0,
    }  # fmt: skip


@dataclass(frozen=True)
class Place:
    """The folders of a node: `data` is large, `run` has a short path."""

    node: NodePlan
    namespace: str
    data: Path
    run: Path
    credentials: Path
    """Where the kubelet keeps its certificate, which outlives the sandbox."""
    plugins: Path
    """The CNI plugins of this machine."""

    @property
    def socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def kubelet(self) -> Path:
        """A short path to the kubelet's data: paths of sockets are limited to 107 characters."""
        return self.run / "kubelet"

    @property
    def certificate(self) -> Path:
        """The kubelet's certificate and its key, under a name of the kubelet's choice."""
        return self.credentials / "kubelet-client-current.pem"

    @property
    def init_file(self) -> Path:
        """Holds the PID and start time of the node's first process, whose namespaces the others join."""
        return self.run / "init"

    @property
    def off_file(self) -> Path:
        """Exists while the node has no power."""
        return self.run / OFF

    def is_up(self) -> bool:
        """Whether the first process of the node runs and the node has power."""
        try:
            pid, started = self.init_file.read_text().split()
        except (OSError, ValueError):
            return False
        return processes.alive(ProcessId(int(pid), started)) and not self.off_file.exists()

    @property
    def containers(self) -> Path:
        """Each running container has a folder here, named like the container."""
        return self.run / "containerd" / "io.containerd.runtime.v2.task" / "k8s.io"


def write(place: Place, plan: Plan, api: ApiServer, pki: Path, token: Token, *, v6: bool = True) -> None:
    """Write the configuration of containerd, kubelet and kube-proxy of this node; `v6`: for its Pods, too."""
    node = place.node
    proxy = certificates.client(api.ca, pki, "system:kube-proxy")
    # Another sandbox may have had other addresses; a certificate is for those in its name.
    serving = certificates.server(api.ca, pki, f"kubelet-{node.name}-{node.v4}", [node.name, *node.addresses])
    place.kubelet.mkdir(parents=True, exist_ok=True)
    (place.data / "kubelet").mkdir(parents=True, exist_ok=True)
    (place.data / "cni").mkdir(parents=True, exist_ok=True)
    whole.write(place.data / "containerd.toml", _containerd(place))
    whole.write(place.data / "cni" / "10-windowbox.conflist", json.dumps(_cni(place, v6=v6), indent=2))
    configuration = {
        **kubelet(str(api.ca.certificate), str(place.socket)),
        # With rotation a kubelet requests its first certificate in the background; until then requests are
        # refused, and retried seconds later. So it joins without rotation, and rotates from the next start.
        "rotateCertificates": joined(place, api.ca),
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "healthzBindAddress": str(node.v4),
        "podLogsDir": str(place.data / "logs"),
        "volumePluginDir": str(place.data / "volume-plugins"),
    }
    whole.write(place.data / "kubelet.yaml", yaml.safe_dump(configuration))
    configuration = {
        **kube_proxy(str(place.data / "kube-proxy.kubeconfig"), f"{plan.pods_v4},{plan.pods_v6}"),
        "hostnameOverride": node.name,
        "healthzBindAddress": "[::]:10256",
        # By default those of the Node as it is when kube-proxy starts: perhaps of the sandbox's last run.
        "nodePortAddresses": [f"{node.v4}/32", f"{node.v6}/128"],
    }
    whole.write(place.data / "kube-proxy.yaml", yaml.safe_dump(configuration))
    _write_kubeconfig(place, "kube-proxy", api, proxy)
    if joined(place, api.ca):
        _write_kubeconfig(place, "kubelet", api, Pair(place.certificate, place.certificate))
    else:
        # A kubelet would use a certificate of another authority if it finds one.
        shutil.rmtree(place.credentials, ignore_errors=True)
        _write_kubeconfig(place, "bootstrap", api, token.text())


def use_name_servers(data: Path, cluster: IPv4Address, host: str) -> None:
    """Let Pods of the node with this folder ask the name server of the cluster, or that of this host.

    Machines ask the one of this host, as all that is outside of a cluster.
    """
    path, resolving = data / "kubelet.yaml", data / "resolv.conf"
    whole.write(resolving, f"nameserver {host}\n")
    configuration = yaml.safe_load(path.read_text())
    configuration |= {"clusterDNS": [str(cluster)], "clusterDomain": "cluster.local"}
    configuration |= {"resolvConf": str(resolving)}
    whole.write(path, yaml.safe_dump(configuration))


def use_registry(data: Path, url: str) -> None:
    """Let the node with this folder pull every image from the registry at `url`, whatever its name says."""
    # `server` is asked last: without it, that would be the registry of the name.
    text = f'server = "{url}"\n\n[host."{url}"]\ncapabilities = ["pull", "resolve"]\n'
    whole.write(data / "certs.d" / "_default" / "hosts.toml", text)


def joined(place: Place, ca: Pair) -> bool:
    """Whether the node has a client certificate of this cluster."""
    return certificates.holds(ca, place.certificate)


def _write_kubeconfig(place: Place, name: str, api: ApiServer, user: Pair | str) -> None:
    text = kubeconfigs.text(api.url, api.ca, user)
    whole.write_private(place.data / f"{name}.kubeconfig", text)


def _containerd(place: Place) -> str:
    return f"""version = 2
root = "{place.data}/containerd"
state = "{place.run}/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
address = "{place.socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{images.PAUSE}"
disable_apparmor = true
# As containerd 2 has them by default, and Pods without root that listen on port 443 need.
enable_unprivileged_ports = true
enable_unprivileged_icmp = true
# Without CAP_SYS_RESOURCE runc cannot become less likely to be killed, and dies.
restrict_oom_score_adj = true
# Else a file for each Pod appears in /run/netns of the host.
netns_mounts_under_state_dir = true

# Each registry that needs more than https has a folder here, HOST:PORT/hosts.toml.
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{place.data}/certs.d"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{place.plugins}"
conf_dir = "{place.data}/cni"
"""


def _cni(place: Place, *, v6: bool) -> dict[str, Any]:
    node = place.node
    subnets, everywhere = [node.pods_v4, node.pods_v6], ["0.0.0.0/0", "::/0"]
    families = len(subnets) if v6 else 1
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(place.run / "ipam"),
            "ranges": [[{"subnet": str(subnet)}] for subnet in subnets[:families]],
            "routes": [{"dst": destination} for destination in everywhere[:families]],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "windowbox", "plugins": [bridge, ports]}
