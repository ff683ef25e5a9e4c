"""A seed, a node of a Shoot and a Pod on it as network namespaces, with both ends of a VPN between them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sandbox.nodes import iproute
from sandbox.programs import obtain
from sandbox.progress import Progress
from tools.gardener import programs
from windowbox.secretsmanager import generation
from windowbox.secretsmanager.configs import Authority, Certificate, Usage

HEADER = "outbound|1194||vpn-seed-server.shoot--local--one.svc.cluster.local"
POD = "10.0.0.2"
"""The address of a Pod of the Shoot. One of the seed has it, too."""
ENVOY = 31415
"""The group of the Envoy through which API servers reach their Shoot."""

_CA = Authority("ca-vpn")
_ENDS = {
    "server": Certificate("vpn-seed-server", "vpn-seed-server", _CA.name, Usage.SERVER, elliptic=True),
    "client": Certificate("vpn-shoot-client", "vpn-shoot-client", _CA.name, Usage.CLIENT, elliptic=True),
}
_LINKS = (("seed", "eth0", "192.0.2.1/24", "node", "eth0", "192.0.2.2/24"),
          ("node", "eth1", "10.0.0.1/24", "pod", "eth0", f"{POD}/24"))  # fmt: skip
_GATEWAY = """
import socket, sys, threading
server = socket.create_server(("192.0.2.1", 8443))
def pump(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)
while True:
    client, _ = server.accept()
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"):
        head += client.recv(1)
    print(head.decode(), flush=True)
    upstream = socket.create_connection(("127.0.0.1", 1194))
    client.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n")
    for pair in ((client, upstream), (upstream, client)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""
"""Passes each request CONNECT on to the server of the VPN, and prints its head."""


@dataclass
class Tunnel:
    """The namespaces and processes of one VPN."""

    folder: Path
    mark: str
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def namespace(self, name: str) -> str:
        return f"{self.mark}-{name}"

    def inside(self, name: str, *command: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.namespace(name)}", *command]

    def start(self, name: str, command: Sequence[str], **environment: str) -> subprocess.Popen[bytes]:
        """Start a process in a namespace. Its output is in a file by the number of the process's turn."""
        with (self.folder / f"log-{len(self.running)}").open("wb") as log:
            process = subprocess.Popen(
                self.inside(name, "setpriv", "--pdeathsig", "KILL", *command),
                env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.running.append(process)
        return process

    def end(self, end: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the program of one end, with the files and variables that its container has."""
        place = self.folder / end
        script = f"mount --bind {place}/srv /srv && exec {program(f'vpn-{end}')} {' '.join(arguments)}"
        return self.start(
            {"server": "seed", "client": "node"}[end], ["unshare", "--mount", "sh", "-c", script],
            TMPDIR=str(place), ENDPOINT="192.0.2.1", OPENVPN_PORT="8443", REVERSED_VPN_HEADER=HEADER,
            REVERSED_VPN_HEADER_KEY="X-Gardener-Destination", SHOOT_POD_NETWORKS="10.0.0.0/24,10.1.0.0/16",
            SHOOT_NODE_NETWORKS="192.0.2.0/24", SHOOT_SERVICE_NETWORKS="",
        )  # fmt: skip

    def fetch(self, host: str, group: int) -> str:
        """What a process of this group in the seed gets from a host; empty if nothing comes."""
        answer = subprocess.run(
            self.inside("seed", "curl", "-sS", "--max-time", "2", f"http://{host}:8080/"),
            group=group, capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        return answer.stdout

    def log(self, turn: int) -> str:
        return (self.folder / f"log-{turn}").read_text()


def program(name: str) -> Path:
    """The program of one end, compiled if it is missing."""
    obtain.compile_missing([programs.PROGRAMS[name]], Progress(print))
    return programs.path(name)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Tunnel]:
    """A VPN whose client reaches its server, with a web server in the Pod and in the seed."""
    tunnel = Tunnel(folder, f"wbvpn{os.getpid() % 10000}")
    try:
        _link(tunnel)
        _write_secrets(folder)
        tunnel.start("seed", [sys.executable, "-c", _GATEWAY])
        for name in ("seed", "pod"):
            page = folder / name / "index.html"
            page.parent.mkdir()
            page.write_text(name)
            web = [
                sys.executable,
                "-m",
                "http.server",
                "8080",
                "--bind",
                POD,
                "--directory",
                str(page.parent),
            ]
            tunnel.start(name, web)
        for end in _ENDS:
            assert tunnel.end(end, "setup").wait(20) == 0
            tunnel.end(end)
        yield tunnel
    finally:
        for process in tunnel.running:
            process.send_signal(signal.SIGKILL)
            process.wait()
        for name in ("seed", "node", "pod"):
            subprocess.run(["ip", "netns", "del", tunnel.namespace(name)], timeout=20, check=False)


def _link(tunnel: Tunnel) -> None:
    for name in ("seed", "node", "pod"):
        iproute.run("ip", "netns", "add", tunnel.namespace(name))
        iproute.run("ip", "-n", tunnel.namespace(name), "link", "set", "lo", "up")
    iproute.run("ip", "-n", tunnel.namespace("seed"), "addr", "add", f"{POD}/32", "dev", "lo")
    for one, device, address, other, peer, remote in _LINKS:
        here, there = tunnel.namespace(one), tunnel.namespace(other)
        iproute.run(
            "ip", "link", "add", device, "netns", here, "type", "veth", "peer", "name", peer, "netns", there
        )
        for namespace, link, prefix in ((here, device, address), (there, peer, remote)):
            iproute.run("ip", "-n", namespace, "addr", "add", prefix, "dev", link)
            iproute.run("ip", "-n", namespace, "link", "set", link, "up")


def _write_secrets(folder: Path) -> None:
    now = datetime.now(UTC)
    authority = generation.authority(_CA, _CA.name, now)
    key = folder / "vpn.tlsauth"
    subprocess.run(["openvpn", "--genkey", "secret", str(key)], timeout=20, check=True)
    for end, config in _ENDS.items():
        mounted = folder / end / "srv" / "secrets" / f"vpn-{end}"
        mounted.mkdir(parents=True)
        files = {**generation.certificate(config, authority, now), "ca.crt": authority["ca.crt"]}
        for name, content in files.items():
            (mounted / name).write_bytes(content)
        for other in ("status", "secrets/tlsauth"):
            (folder / end / "srv" / other).mkdir()
        (folder / end / "srv/secrets/tlsauth/vpn.tlsauth").write_bytes(key.read_bytes())
