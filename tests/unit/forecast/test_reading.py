"""How the facts of a machine are read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.forecast import network, reading, resources
from sandbox.nodes import claims
from tests.support.cases import cases

_ROOT = Path(__file__).parents[3]
_LISTEN = "import socket; s = socket.socket(); s.bind(('0.0.0.0', 22)); s.listen()"
_REFUSAL = "from sandbox.forecast import ports; print(ports.refusal(22))"
_USER = "import os; os.setuid(65534)"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, for a network")
@cases(
    "before refusal",
    ("free", "", ""),
    ("taken", _LISTEN, "another process of this host holds port 22 of all addresses"),
    ("of-root", _USER, "port 22 is for root: sudo sysctl net.ipv4.ip_unprivileged_port_start=22"),
)
def test_a_port_is_refused_with_its_reason(before: str, refusal: str) -> None:
    script = f"import sandbox.forecast.ports\n{before}\n{_REFUSAL}"
    answer = subprocess.run(
        ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", sys.executable, "-c", script],
        cwd=_ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert answer.stdout.strip() == refusal


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to claim a number")
def test_numbers_that_sandboxes_hold_are_seen_without_a_lock() -> None:
    with claims.highest() as claim:
        assert claim.number in claims.taken()
    with claims.held(claim.number) as again:
        assert again is not None


@cases(
    "text servers",
    ("one", "search here\nnameserver 192.0.2.1\n", ["192.0.2.1"]),
    ("comments", "# nameserver 192.0.2.1\n; nameserver 192.0.2.2\n", []),
    ("four", "".join(f"nameserver ::{n}\n" for n in range(4)), ["::0", "::1", "::2"]),
)
def test_name_servers_are_those_of_resolv_conf(text: str, servers: list[str]) -> None:
    assert network.nameservers_in(text) == servers


def test_a_fact_that_is_not_known_in_time_is_left_out() -> None:
    script = (
        "import time; from sandbox.forecast.reading import _Asked\n"
        "slow = _Asked(lambda: time.sleep(600))\n"
        "print(slow.by(time.monotonic(), otherwise='unknown'))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stdout.strip() == "unknown"


def test_a_fact_that_cannot_be_read_is_left_out() -> None:
    def absent() -> int:
        return int(Path("/proc/there/is/no/such/file").read_text())

    assert reading._Asked(absent).by(time.monotonic() + 60, otherwise=7) == 7


def test_a_folder_that_does_not_exist_is_on_the_disk_of_its_parents(tmp_path: Path) -> None:
    place = resources.place("sandbox", tmp_path / "not" / "yet")
    assert (place.disk, place.writable) == (tmp_path.stat().st_dev, True)
    assert place.free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.5)
    assert not (tmp_path / "not").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_instances_of_inotify_are_counted() -> None:
    import ctypes

    libc = ctypes.CDLL(None)
    made = [libc.inotify_init() for _ in range(5)]
    try:
        assert resources.inotify_free() <= int(
            Path("/proc/sys/fs/inotify/max_user_instances").read_text()
        ) - len(made)
    finally:
        for one in made:
            os.close(one)
