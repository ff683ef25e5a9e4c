"""Addresses and routes of this host."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rules import rule
from windowbox.errors import Refused
from workers.loadbalancer.links import addresses, hostnetwork
from workers.loadbalancer.links.addresses import Links

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to add links and addresses")


@pytest.fixture
def link() -> Iterator[str]:
    """A link that leads nowhere, 198.19.77.1/24. Nothing of that range stays on the loopback."""
    name = f"wbt{os.getpid()}"
    made = subprocess.run(
        ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"no link can be made: {made.stderr.strip()}")
    try:
        subprocess.run(["ip", "address", "add", "198.19.77.1/24", "dev", name], check=True)
        for end in (name, f"{name}p"):
            subprocess.run(["ip", "link", "set", end, "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "link", "del", name], check=False)
        subprocess.run(["ip", "address", "flush", "dev", "lo", "to", "198.19.77.0/24"], check=False)


@pytest.fixture
def strange() -> Iterator[str]:
    """An address that this host does not have before and after the test."""
    address = f"198.19.78.{os.getpid() % 250 + 1}"
    yield address
    subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=False)


@pytest.fixture
def setting() -> Iterator[Path]:
    """The sysctl that keeps waiting connections; restored at the end."""
    found = hostnetwork.setting_of(hostnetwork.MIGRATE)
    if not found.exists():
        pytest.skip(f"this system has no {hostnetwork.MIGRATE}")
    before = found.read_text()
    yield found
    found.write_text(before)


def listening() -> socket.socket:
    """One of several listeners of one address, as while one Envoy replaces another."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((f"127.200.5.{os.getpid() % 250 + 1}", 8080))
    made.listen(50)
    return made


@rule("LB-15-12")
@root_only
def test_clients_of_a_closing_listener_are_served_elsewhere(setting: Path) -> None:
    setting.write_text("0")
    hostnetwork.keep_waiting_connections()
    with contextlib.ExitStack() as stack:
        old = listening()
        waiting = [stack.enter_context(socket.create_connection(old.getsockname(), 5)) for _ in range(5)]
        new = stack.enter_context(listening())
        old.close()
        new.settimeout(5)
        for _ in waiting:
            with new.accept()[0] as accepted:
                accepted.sendall(b"hello")
        assert [client.recv(5) for client in waiting] == [b"hello"] * 5


def routes(link: str) -> dict[str, str]:
    shown = subprocess.run(
        ["ip", "route", "show", "dev", link, "proto", hostnetwork.PROTOCOL],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.split()[0]: line.split()[2] for line in shown.stdout.splitlines()}


def add(address: str) -> None:
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)


async def test_loopback_addresses_need_no_preparation() -> None:
    assert await hostnetwork.prepare(["127.200.3.4", "127.0.0.1"]) == {}


@root_only
@rule("LB-15-10")
async def test_an_address_that_does_not_arrive_is_added(strange: str) -> None:
    assert not hostnetwork.arrives(strange)
    assert await hostnetwork.prepare([strange]) == {}
    assert await hostnetwork.prepare([strange]) == {}
    assert hostnetwork.arrives(strange)


@root_only
async def test_only_added_addresses_are_removed(strange: str, tmp_path: Path) -> None:
    record = tmp_path / "edge" / hostnetwork.ADDED
    assert await hostnetwork.prepare(["127.200.3.4", strange], record) == {}
    assert hostnetwork.added(record) == [strange]
    await hostnetwork.remove([strange], record)
    assert not hostnetwork.arrives(strange)
    assert hostnetwork.added(record) == []
    await hostnetwork.remove([strange], record)
    add(strange)
    assert await hostnetwork.prepare([strange], record) == {}
    assert hostnetwork.added(record) == []  # it was not added by us


@root_only
@rule("LB-10-routes", "LB-10-unused", "LB-11-10")
async def test_the_host_has_exactly_the_desired_routes(link: str, tmp_path: Path) -> None:
    record = tmp_path / "routes.json"
    await hostnetwork.route(record, {"198.19.80.1/32": "198.19.77.2", "198.19.80.2/32": "198.19.77.3"})
    assert routes(link) == {"198.19.80.1": "198.19.77.2", "198.19.80.2": "198.19.77.3"}
    await hostnetwork.route(record, {"198.19.80.1/32": "198.19.77.9"})
    await hostnetwork.route(record, {"198.19.80.1/32": "198.19.77.9"})
    assert routes(link) == {"198.19.80.1": "198.19.77.9"}
    await hostnetwork.route(record, {})
    assert routes(link) == {}


@root_only
async def test_machines_on_this_host_itself_keep_their_own_routes(link: str, tmp_path: Path) -> None:
    record = tmp_path / "routes.json"
    await hostnetwork.route(record, {"198.19.80.1/32": "198.19.77.2"})
    # The machine's Pod is on this host now, which has 198.19.77.1.
    await hostnetwork.route(record, {"198.19.80.1/32": "198.19.77.1"})
    assert routes(link) == {}


@root_only
@rule("LB-11-10")
async def test_a_route_that_cannot_be_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"ip route replace 198\.19\.80\.1/32 via 203\.0\.113\.1"):
        await hostnetwork.route(tmp_path / "routes.json", {"198.19.80.1/32": "203.0.113.1"})


def places(address: str) -> list[str]:
    """The links with this address."""
    shown = subprocess.run(["ip", "-json", "address", "show"], capture_output=True, text=True, check=True)
    links = json.loads(shown.stdout)
    return [one["ifname"] for one in links if address in {info["local"] for info in one["addr_info"]}]


@root_only
async def test_addresses_of_several_hosts_leave_the_loopback_and_an_ended_host(
    link: str, tmp_path: Path
) -> None:
    address, record = "198.19.77.9", tmp_path / hostnetwork.ADDED
    assert await hostnetwork.prepare([address], record) == {}  # as an edge without other hosts
    assert places(address) == ["lo"]

    links = Links()
    links.allow([address])
    assert await links.prepare([address], record) == {}
    assert places(address) == [link]

    await addresses.leave(record)
    assert places(address) == []

    assert await links.prepare([address], record) == {}
    assert places(address) == [link]
