from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import dns.query
import dns.update
import pytest
from click.testing import CliRunner, Result

from commands.resolver.resolver import resolver
from sandbox import processes
from tests.support import servers
from tests.support.servers import NameServer
from windowbox.errors import Refused, Unreachable


def run(*arguments: str | Path) -> Result:
    """The command's result; its errors come through as they are."""
    return CliRunner().invoke(resolver, [str(argument) for argument in arguments], catch_exceptions=False)


SERVED = ("--server", "127.0.0.1:5300", "--zone", "local.gardener.cloud")


def test_installing_writes_one_file_and_removing_takes_it_away(tmp_path: Path) -> None:
    file = tmp_path / "etc/resolver/local.gardener.cloud"
    assert f"Wrote {file}" in run("install", *SERVED, "--via", "macos", "--root", tmp_path).output
    assert "already says so" in run("install", *SERVED, "--via", "macos", "--root", tmp_path).output
    assert f"Removed {file}" in run("remove", "--root", tmp_path).output
    assert not file.exists()
    assert "Nothing to remove" in run("remove", "--root", tmp_path).output


def test_a_dry_run_shows_the_file_and_writes_nothing(tmp_path: Path) -> None:
    shown = run("install", *SERVED, "--via", "systemd", "--root", tmp_path, "--dry-run").output
    assert "Domains=~local.gardener.cloud" in shown
    assert "etc/systemd/resolved.conf.d/windowbox-local.gardener.cloud.conf" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_removes_nothing(tmp_path: Path) -> None:
    run("install", *SERVED, "--via", "dnsmasq", "--root", tmp_path)
    assert "Would remove" in run("remove", "--root", tmp_path, "--dry-run").output
    assert "Removed" in run("remove", "--root", tmp_path).output


def test_lines_for_a_hosts_file_hold_what_the_server_says(named: NameServer) -> None:
    served = ("--server", named.address, "--zone", named.zone)
    shown = run("install", *served, "--via", "hosts", "--name", f"ns.{named.zone}").output
    assert f"127.0.0.1\tns.{named.zone}\n::1\tns.{named.zone}" in shown


@pytest.fixture
def localhost(tmp_path: Path) -> Iterator[NameServer]:
    """A name server for a zone whose name the host knows without asking anybody."""
    if reason := servers.missing("named"):
        pytest.skip(reason)
    with servers.name_server(tmp_path / "named", key=None, zone="localhost") as server:
        yield server


def tell(server: NameServer, addresses: set[str]) -> None:
    update = dns.update.UpdateMessage(server.zone)
    for address in addresses:
        update.add("@", 60, "AAAA" if ":" in address else "A", address)
    dns.query.tcp(update, "127.0.0.1", port=server.port, timeout=5)


def test_check_succeeds_if_the_host_gets_the_servers_answer(localhost: NameServer) -> None:
    answers = socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)
    tell(localhost, {str(address[0]) for *_, address in answers})
    result = run("check", "--server", localhost.address, "--zone", "localhost", "--name", "localhost")
    assert (result.exit_code, result.output.splitlines()[0]) == (0, "localhost: ok")


def test_a_host_with_other_answers_is_shown_the_remedy(localhost: NameServer) -> None:
    tell(localhost, {"127.9.9.9"})
    result = run("check", "--server", localhost.address, "--zone", "localhost", "--name", "localhost")
    assert result.exit_code == 1
    assert "server: 127.9.9.9" in result.output
    assert "windowbox resolver install" in result.output


def test_a_server_that_refuses_to_answer_is_named(named: NameServer) -> None:
    with pytest.raises(Refused, match="REFUSED"):
        run("check", "--server", named.address, "--zone", named.zone, "--name", "localhost")


def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        run("check", "--server", f"127.0.0.1:{processes.free_port()}", "--zone", "x", "--name", "localhost")
