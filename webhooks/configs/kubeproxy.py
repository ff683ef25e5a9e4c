"""`KubeProxyConfiguration` of `kubeproxy.config.k8s.io/v1alpha1`, as of Kubernetes 1.36."""

from __future__ import annotations

from webhooks.configs import logs
from webhooks.configs.typed import Table

TABLE: Table = {
    **logs.TABLE,
    "KubeProxyConfiguration": {
        "apiVersion": "string?",
        "bindAddress": "string",
        "bindAddressHardFail": "bool",
        "clientConnection": "ClientConnectionConfiguration",
        "clusterCIDR": "string",
        "configSyncPeriod": "duration",
        "conntrack": "KubeProxyConntrackConfiguration",
        "detectLocal": "DetectLocalConfiguration",
        "detectLocalMode": "string",
        "enableProfiling": "bool",
        "featureGates": "{}bool?",
        "healthzBindAddress": "string",
        "hostnameOverride": "string",
        "iptables": "KubeProxyIPTablesConfiguration",
        "ipvs": "KubeProxyIPVSConfiguration",
        "kind": "string?",
        "logging": "LoggingConfiguration?",
        "metricsBindAddress": "string",
        "mode": "string",
        "nftables": "KubeProxyNFTablesConfiguration",
        "nodePortAddresses": "[]string",
        "oomScoreAdj": "*int32",
        "portRange": "string",
        "showHiddenMetricsForVersion": "string",
        "windowsRunAsService": "bool?",
        "winkernel": "KubeProxyWinkernelConfiguration",
    },
    "ClientConnectionConfiguration": {
        "acceptContentTypes": "string",
        "burst": "int32",
        "contentType": "string",
        "kubeconfig": "string",
        "qps": "float32",
    },
    "DetectLocalConfiguration": {
        "bridgeInterface": "string",
        "interfaceNamePrefix": "string",
    },
    "KubeProxyConntrackConfiguration": {
        "maxPerCore": "*int32",
        "min": "*int32",
        "tcpBeLiberal": "bool",
        "tcpCloseWaitTimeout": "*duration",
        "tcpEstablishedTimeout": "*duration",
        "udpStreamTimeout": "duration",
        "udpTimeout": "duration",
    },
    "KubeProxyIPTablesConfiguration": {
        "localhostNodePorts": "*bool",
        "masqueradeAll": "bool",
        "masqueradeBit": "*int32",
        "minSyncPeriod": "duration",
        "syncPeriod": "duration",
    },
    "KubeProxyIPVSConfiguration": {
        "excludeCIDRs": "[]string",
        "minSyncPeriod": "duration",
        "scheduler": "string",
        "strictARP": "bool",
        "syncPeriod": "duration",
        "tcpFinTimeout": "duration",
        "tcpTimeout": "duration",
        "udpTimeout": "duration",
    },
    "KubeProxyNFTablesConfiguration": {
        "masqueradeAll": "bool",
        "masqueradeBit": "*int32",
        "minSyncPeriod": "duration",
        "syncPeriod": "duration",
    },
    "KubeProxyWinkernelConfiguration": {
        "enableDSR": "bool",
        "forwardHealthCheckVip": "bool",
        "networkName": "string",
        "rootHnsEndpointName": "string",
        "sourceVip": "string",
    },
}
