"""The configuration of a sandbox's children."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sandbox import roles, stages
from sandbox import state as states
from sandbox.nodes import addresses
from sandbox.nodes.addresses import Plan
from sandbox.options import Options
from sandbox.roles import Surroundings
from sandbox.servers import controlplane
from tests.support import servers
from tests.support.cases import cases
from windowbox.errors import Malformed
from windowbox.settings import settings

OPTIONS = Options(workers=2, ports={"named": 5399})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    servers.need(*stages.PROGRAMS)
    folder = tmp_path / "stages"
    stages.stages(folder, OPTIONS, stages.choose_ports(OPTIONS, {}))
    return folder


def test_processes_are_named_by_role_and_number() -> None:
    assert stages.role_processes(OPTIONS) == [
        ("watcher", "watcher-1"),
        ("worker", "worker-1"),
        ("worker", "worker-2"),
        ("patcher", "patcher-1"),
    ]


def test_requested_ports_are_used_and_none_twice() -> None:
    ports = stages.choose_ports(OPTIONS, {"etcd": 5399})
    assert ports["named"] == 5399
    assert len(set(ports.values())) == len(ports)


@cases(
    "ports complaint",
    ("unknown-process", {"nobody": 5399}, "no process has this name"),
    ("one-port-twice", {"named": 5399, "etcd": 5399}, "another process has it"),
)
def test_ports_that_cannot_be_given_are_refused(ports: dict[str, int], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        stages.choose_ports(Options(ports=ports), {})


@pytest.mark.parametrize("name", ["watcher-1", "worker-2", "patcher-1", "operator"])
def test_a_process_understands_the_settings_written_for_it(name: str, folder: Path) -> None:
    read = settings.load(roles.settings_file(folder, name))
    assert read.nats.user == name.partition("-")[0]
    assert read.cluster.kubeconfig == roles.kubeconfig(folder, name.partition("-")[0])


def test_three_servers_know_each_other(tmp_path: Path) -> None:
    servers.need(*stages.PROGRAMS)
    three = Options(nats_servers=3)
    ports = stages.choose_ports(three, {})
    stages.stages(tmp_path, three, ports)
    read = settings.load(roles.settings_file(tmp_path, "worker-1")).nats
    assert read.replicas == 3
    names = ("nats-server", "nats-server-2", "nats-server-3")
    assert read.url == ",".join(f"nats://127.0.0.1:{ports[name]}" for name in names)
    routes = [f"nats://127.0.0.1:{ports[name.replace('server', 'route')]}" for name in names]
    for name in names:
        configuration = json.loads((tmp_path / "nats" / name / "nats-server.conf").read_text())
        assert configuration["cluster"]["routes"] == routes
        assert configuration["cluster"]["listen"] == routes[names.index(name)].removeprefix("nats://")


def test_only_processes_that_change_dns_get_the_key(folder: Path) -> None:
    holders = {
        name
        for name in ("watcher-1", "worker-1", "patcher-1", "operator")
        if "dns" in yaml.safe_load(roles.settings_file(folder, name).read_text())
    }
    assert holders == {"worker-1", "operator"}


def test_workers_get_the_settings_of_kinds(folder: Path) -> None:
    read = settings.load(roles.settings_file(folder, "worker-1")).kinds
    assert read.backup.root == folder / "backups"
    assert read.backup.root.stat().st_mode & 0o777 == 0o700
    assert read.heartbeat.namespace == "windowbox-system"
    [prefix] = read.infrastructure.external
    assert str(prefix).startswith("127.")


def test_policies_of_machines_fit_the_sandboxs_nodes(folder: Path) -> None:
    plan = Plan(*next(addresses.parts(OPTIONS.ranges)), addresses.names(1))
    pki = folder / "pki"
    api = controlplane.api(controlplane.identities(pki), 6443)
    around = Surroundings(
        folder, api, "nats://127.0.0.1:4222", 1, {"worker": "x"}, 53, None, ("198.51.100.0/24",), plan
    )
    read = settings.load(roles.write_settings(around, "worker", "worker-9", None)).kinds.infrastructure
    assert read.node_networks == (plan.nodes_v4, plan.nodes_v6)
    assert [str(one) for one in read.balancers] == [f"{plan.host_v4}/32", f"{plan.host_v6}/128"]
    assert [str(one) for one in read.external] == ["198.51.100.0/24"]


def test_kinds_of_another_windowbox_are_not_watched(folder: Path) -> None:
    api = controlplane.api(controlplane.identities(folder / "pki"), 6443)
    around = Surroundings(
        folder, api, "nats://127.0.0.1:4222", 1, {"runner": "x"}, 53, None, ("198.51.100.0/24",),
        kinds=("services", "nodes"),
    )  # fmt: skip
    read = settings.load(roles.write_settings(around, "runner", "runner-9", None))
    assert read.watch.kinds == ("services", "nodes")
    assert read.loadbalancer.ranges
    # Nor are clusters of clouds, or a folder for backups, that belong to the others.
    assert (read.clouds.types, read.backup.root) == ((), None)


def test_settings_are_readable_by_their_owner_only(folder: Path) -> None:
    for path in (*(folder / "settings").iterdir(), *folder.glob("*.kubeconfig"), folder / "dns.key"):
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_sandboxes_are_found_from_folders_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".windowbox").mkdir()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.delenv("WINDOWBOX_HOME", raising=False)
    assert states.folder("mine") == tmp_path / ".windowbox" / "mine"
