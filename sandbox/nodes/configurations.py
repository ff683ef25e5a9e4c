"""What kubelets and kube-proxies of the sandbox have in common, on nodes of this host and in machines."""

from __future__ import annotations

from typing import Any

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
