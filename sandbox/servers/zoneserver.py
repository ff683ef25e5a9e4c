"""BIND 9 with the zones of the local set-up, open for dynamic updates."""

from __future__ import annotations

import base64
import os
import secrets
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox import files
from sandbox.children import Child

LOOPBACK = "127.0.0.1"
ZONE = "local.gardener.cloud"
HOST_NAMES = "amazonaws.com"
"""The zone of the host names of load balancers, as those of AWS."""
ZONES = (ZONE, HOST_NAMES)


@dataclass(frozen=True)
class Key:
    """A TSIG key, which signs updates."""

    name: str
    algorithm: str
    secret: str

    def settings(self) -> dict[str, str]:
        return {"name": self.name, "algorithm": self.algorithm, "secret": self.secret}


def new_key(name: str = "windowbox") -> Key:
    return Key(name, "hmac-sha256", base64.b64encode(secrets.token_bytes(32)).decode())


def kept_key(path: Path) -> Key:
    """The key in the file at `path`, created if there is none yet. `dig -k` and `nsupdate -k` take it."""
    if not path.exists():
        files.write_private(path, _key_clause(new_key()))
    words = path.read_text().replace('"', " ").replace(";", " ").split()
    return Key(*(words[words.index(word) + 1] for word in ("key", "algorithm", "secret")))


def named(
    program: Path, folder: Path, port: int, key: Key | None, *zones: str, host: str = LOOPBACK
) -> Child:
    """A name server with its data in `folder`; without `key`, unsigned updates are accepted.

    It listens on loopback and, for nodes and their Pods, on the address `host`, there on the usual port, too:
    resolvers know no other.
    """
    data = folder / "zones"
    data.mkdir(parents=True, exist_ok=True)
    configuration = folder / "named.conf"
    files.write_private(configuration, _configuration(data, port, key, zones, host))

    def write_zones() -> None:
        for zone in zones:
            _write_zone(data, zone)

    write_zones()
    # Written again before each start: the data of a stopped server may have been wiped.
    return Child(
        "named",
        # -g: in the foreground, logging to stderr; -n: as many threads as a sandbox has use for.
        [str(program), "-g", "-4", "-n", "2", "-c", str(configuration)],
        ready=lambda: all(answers(port, zone) for zone in zones),
        port=port,
        before=write_zones,
    )


def answers(port: int, zone: str) -> bool:
    """Whether the server answers for the zone with authority and without error."""
    number = os.urandom(2)
    name = b"".join(bytes([len(label)]) + label.encode() for label in zone.split("."))
    query = number + struct.pack("!5H", 0, 1, 0, 0, 0) + name + b"\0" + struct.pack("!2H", 6, 1)
    with socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.settimeout(1)
        try:
            udp.connect((LOOPBACK, port))
            udp.send(query)
            reply = udp.recv(4096)
        except OSError:
            return False
    (flags,) = struct.unpack_from("!H", reply, 2)
    return reply[:2] == number and bool(flags & 0x0400) and flags & 0xF == 0


def _write_zone(folder: Path, zone: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{zone}.zone"
    # A journal belongs to the zone file it was begun with: over a fresh file it would be refused.
    if not path.exists() and not path.with_suffix(".zone.jnl").exists():
        files.write(
            path,
            f"""$ORIGIN {zone}.
$TTL 30
@ SOA ns admin ( 2026021101 30 30 30 1 )
@ NS ns
ns A 127.0.0.1
ns AAAA ::1
docker-dns A 127.0.0.11
registry NS docker-dns
registry-cache NS docker-dns
api.root.garden.external A 127.0.0.1
""",
        )


def _configuration(folder: Path, port: int, key: Key | None, zones: Iterable[str], host: str) -> str:
    # No files outside of the folder: several sandboxes run on one machine.
    update = f'{{ key "{key.name}"; }}' if key else "{ any; }"
    clauses = [
        f"""zone "{zone}" {{
    type primary;
    file "{zone}.zone";
    allow-update {update};
    allow-transfer {{ 127.0.0.1; }};
}};
"""
        for zone in zones
    ]
    usual = "" if host == LOOPBACK else f"    listen-on port 53 {{ {host}; }};\n"
    return f"""{_key_clause(key) if key else ""}controls {{ }};
options {{
    directory "{folder}";
    pid-file none;
    session-keyfile none;
    listen-on port {port} {{ {"; ".join(sorted({LOOPBACK, host}))}; }};
{usual}    listen-on-v6 {{ none; }};
    recursion no;
    dnssec-validation no;
    notify no;
}};
{"".join(clauses)}"""


def _key_clause(key: Key) -> str:
    return f'key "{key.name}" {{\n    algorithm {key.algorithm};\n    secret "{key.secret}";\n}};\n'
