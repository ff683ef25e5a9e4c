"""The configuration of a node's programs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

from sandbox.nodes import addresses, joining, nodefiles
from sandbox.nodes.addresses import Plan
from sandbox.nodes.nodefiles import Place
from sandbox.options import Options
from sandbox.servers import certificates, ranges
from sandbox.servers.apiserver import ApiServer

PLAN = Plan(*next(addresses.parts(Options().ranges)), addresses.names(1))


def test_node_ports_are_those_of_the_present_addresses(tmp_path: Path) -> None:
    """Whatever addresses the Node had in the sandbox's last run."""
    [node] = PLAN.nodes
    place = Place(
        node, "wb0-node-1", tmp_path / "data", tmp_path / "run", tmp_path / "kept", plugins=tmp_path / "cni"
    )
    pki = tmp_path / "pki"
    authority = certificates.authority(pki)
    api = ApiServer("https://198.18.0.1:6443", authority, certificates.client(authority, pki, "admin"))
    nodefiles.write(place, PLAN, api, pki, joining.token())
    configuration = yaml.safe_load((place.data / "kube-proxy.yaml").read_text())
    assert configuration["nodePortAddresses"] == ["198.18.0.11/32", "fd77:6e64:6278::b/128"]


def test_all_images_come_from_one_registry(tmp_path: Path) -> None:
    nodefiles.use_registry(tmp_path, "http://198.18.0.1:5001")
    hosts = tomllib.loads((tmp_path / "certs.d" / "_default" / "hosts.toml").read_text())
    # Without a server, containerd would ask the registry in the name of the image last.
    assert hosts["server"] == "http://198.18.0.1:5001"
    assert hosts["host"] == {"http://198.18.0.1:5001": {"capabilities": ["pull", "resolve"]}}


def test_pods_ask_the_name_server_of_the_cluster_and_machines_that_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "kubelet.yaml").write_text("clusterDomain: other\nkind: KubeletConfiguration\n")
    nodefiles.use_name_servers(tmp_path, ranges.part(0).name_server, "198.18.0.1")
    assert yaml.safe_load((tmp_path / "kubelet.yaml").read_text()) == {
        "kind": "KubeletConfiguration",
        "clusterDNS": ["240.0.0.10"],
        "clusterDomain": "cluster.local",
        "resolvConf": str(tmp_path / "resolv.conf"),
    }
    assert (tmp_path / "resolv.conf").read_text() == "nameserver 198.18.0.1\n"
