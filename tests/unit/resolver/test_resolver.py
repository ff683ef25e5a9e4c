from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import pytest

from commands.resolver import hosts
from commands.resolver.hosts import MARKER, Method
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed, Missing, Refused

ZONE = "local.gardener.cloud"
V4 = hosts.target(ZONE, "127.0.0.1:5300")
V6 = hosts.target(ZONE, "[::1]:5300")


@rule("2.19-host-resolvers")
@cases(
    "method target lines",
    ("systemd", Method.SYSTEMD, V4, ["[Resolve]", "DNS=127.0.0.1:5300", "Domains=~local.gardener.cloud"]),
    ("systemd-ipv6", Method.SYSTEMD, V6, ["[Resolve]", "DNS=[::1]:5300", "Domains=~local.gardener.cloud"]),
    ("macos", Method.MACOS, V4, ["nameserver 127.0.0.1", "port 5300"]),
    ("macos-ipv6", Method.MACOS, V6, ["nameserver ::1", "port 5300"]),
    (
        "dnsmasq",
        Method.DNSMASQ,
        V4,
        ["server=/local.gardener.cloud/127.0.0.1#5300", "rebind-domain-ok=/local.gardener.cloud/"],
    ),
)
def test_the_content_of_each_file(method: Method, target: hosts.Target, lines: list[str]) -> None:
    assert hosts.text(method, target) == "\n".join([MARKER, *lines, ""])


@rule("2.19-host-resolvers")
@cases(
    "method file",
    ("systemd", Method.SYSTEMD, "/etc/systemd/resolved.conf.d/windowbox-local.gardener.cloud.conf"),
    ("macos", Method.MACOS, "/etc/resolver/local.gardener.cloud"),
    ("dnsmasq", Method.DNSMASQ, "/etc/dnsmasq.d/windowbox-local.gardener.cloud.conf"),
)
def test_the_path_of_each_file(method: Method, file: str) -> None:
    assert hosts.path(method, ZONE, Path("/")) == Path(file)


@cases(
    "system folders method",
    ("macos", "Darwin", [], Method.MACOS),
    ("systemd-runs", "Linux", ["run/systemd/resolve", "etc/dnsmasq.d"], Method.SYSTEMD),
    ("dnsmasq-is-there", "Linux", ["etc/systemd", "etc/dnsmasq.d"], Method.DNSMASQ),
    ("neither", "Linux", [], Method.HOSTS),
)
def test_the_method_fits_the_host(tmp_path: Path, system: str, folders: list[str], method: Method) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    assert hosts.fitting(system, tmp_path) is method


@cases(
    "zone server",
    ("zone-that-is-a-path", "../../etc/passwd", "127.0.0.1"),
    ("zone-of-two-lines", "local.gardener.cloud\nnameserver 6.6.6.6", "127.0.0.1"),
    ("no-zone", "", "127.0.0.1"),
    ("server-with-a-name", ZONE, "ns.local.gardener.cloud:53"),
    ("no-port", ZONE, "127.0.0.1:0"),
    ("no-server", ZONE, ""),
)
def test_a_malformed_target_is_refused(zone: str, server: str) -> None:
    with pytest.raises(Malformed):
        hosts.target(zone, server)


def test_a_zone_is_taken_in_any_spelling() -> None:
    assert hosts.target("Local.Gardener.Cloud.", "127.0.0.1:5300") == V4
    assert hosts.target(ZONE, "127.0.0.1").port == 53


@pytest.mark.parametrize("method", list(hosts.FOLDERS))
def test_writing_twice_is_writing_once(tmp_path: Path, method: Method) -> None:
    assert hosts.install(method, V4, tmp_path) == hosts.path(method, ZONE, tmp_path)
    assert hosts.install(method, V4, tmp_path) is None


def test_another_port_replaces_what_we_wrote_before(tmp_path: Path) -> None:
    hosts.install(Method.MACOS, V4, tmp_path)
    written = hosts.install(Method.MACOS, hosts.target(ZONE, "127.0.0.1:5301"), tmp_path)
    assert written is not None
    assert "port 5301" in written.read_text()


def test_foreign_files_are_neither_replaced_nor_removed(tmp_path: Path) -> None:
    theirs = hosts.path(Method.MACOS, ZONE, tmp_path)
    theirs.parent.mkdir(parents=True)
    theirs.write_text("nameserver 10.0.0.1\n")
    with pytest.raises(Refused, match="not written by windowbox"):
        hosts.install(Method.MACOS, V4, tmp_path)
    assert list(hosts.installed(tmp_path)) == []
    assert theirs.read_text() == "nameserver 10.0.0.1\n"


def test_all_installed_files_are_found(tmp_path: Path) -> None:
    other = hosts.target("example.com", "127.0.0.1:5300")
    for method in hosts.FOLDERS:
        hosts.install(method, V4, tmp_path)
    hosts.install(Method.MACOS, other, tmp_path)
    (tmp_path / "etc/dnsmasq.d/README").write_text("not ours")
    assert len(list(hosts.installed(tmp_path))) == 4
    assert [method for method, _ in hosts.installed(tmp_path, ZONE)] == list(hosts.FOLDERS)


def test_lines_for_a_hosts_file() -> None:
    addresses = {"b.x": [ip_address("10.0.0.2")], "a.x": [ip_address("10.0.0.1"), ip_address("fd00::1")]}
    assert hosts.hosts_block("x", addresses).splitlines() == [
        "# windowbox: x",
        "10.0.0.1\ta.x",
        "fd00::1\ta.x",
        "10.0.0.2\tb.x",
        "# windowbox: end of x",
    ]


def test_without_a_sandbox_the_remedy_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDOWBOX_HOME", str(tmp_path))
    with pytest.raises(Missing, match="windowbox up"):
        hosts.running_sandbox()
