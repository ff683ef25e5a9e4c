"""Ports for servers, allocated by several processes at once."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox import processes

_PORTS = range(25600, 30000)


@pytest.fixture
def last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the port that was allocated last."""
    path = tmp_path / "last.port"
    monkeypatch.setattr(processes, "_LAST_PORT", path)
    return path


def test_no_port_is_allocated_twice(last: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        given = list(threads.map(lambda _: processes.free_port(), range(60)))
    assert len(set(given)) == len(given)
    assert set(given) <= set(_PORTS)


def test_a_port_in_use_is_not_allocated(last: Path) -> None:
    first = processes.free_port()
    last.write_text(str(first - 1))
    with socket.socket() as server:
        server.bind(("127.0.0.1", first))
        assert processes.free_port() != first


@pytest.mark.parametrize("text", ["", "nonsense", "29999", "99999999", "-1"])
def test_a_damaged_file_does_not_prevent_allocation(last: Path, text: str) -> None:
    last.write_text(text)
    given = [processes.free_port() for _ in range(3)]
    assert len(set(given)) == 3
    assert set(given) <= set(_PORTS)


def test_a_symbolic_link_is_not_followed(last: Path) -> None:
    last.symlink_to(last.parent / "elsewhere")
    assert processes.free_port() in _PORTS
    assert not (last.parent / "elsewhere").exists()
