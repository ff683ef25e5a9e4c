"""A name server of each test's own, and ways to look into it that are not the product's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from sandbox import processes
from tests.support import servers
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import TransientError
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType
from windowbox.settings.dnssettings import DnsSettings

ZONE = "local.gardener.cloud"
KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ="

_ZONE_FILE = """$TTL 30
@ IN SOA ns hostmaster 100 30 30 30 1
@ IN NS ns
ns IN A 172.18.255.53
"""

_CONFIG = """
options {{
  directory "{directory}"; pid-file none; session-keyfile none; recursion no; dnssec-validation no;
  listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; notify no; allow-transfer {{ any; }};
}};
key "rndc" {{ algorithm hmac-sha256; secret "{key}"; }};
key "good" {{ algorithm hmac-sha256; secret "{key}"; }};
key "good512" {{ algorithm hmac-sha512; secret "{key}"; }};
controls {{ inet 127.0.0.1 port {control} allow {{ 127.0.0.1; }} keys {{ "rndc"; }}; }};
{zones}
"""


class Named:
    """A running `named`; it dies with the process that started it."""

    def __init__(self, directory: Path, zones: dict[str, str], options: str, files: dict[str, str]) -> None:
        self.directory = directory
        self.port, self.control = processes.free_port(), processes.free_port()
        self._zones = "".join(
            f'zone "{name}" {{ type primary; file "{name}.zone"; {options or policy} }};\n'
            for name, policy in zones.items()
        )
        for name in zones:
            (directory / f"{name}.zone").write_text(files.get(name, _ZONE_FILE))
        self.start()

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self.directory / "named.conf"
        places = {"directory": self.directory, "port": self.port, "control": self.control}
        config.write_text(_CONFIG.format(**places, key=KEY, zones=self._zones))
        log = self.directory / "named.log"
        log.unlink(missing_ok=True)
        self.process = processes.start(["named", "-g", "-n", "1", "-c", str(config)], log)
        servers.wait(lambda: " running\n" in log.read_text(), self.process, "named", log)
        assert "address in use" not in log.read_text()

    def kill(self) -> None:
        """As if the power failed."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        servers.end(self.process)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within, it stands still."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def rndc(self, *command: str) -> None:
        config = self.directory / "rndc.conf"
        key = f'key "rndc" {{ algorithm hmac-sha256; secret "{KEY}"; }};'
        config.write_text(f'{key} options {{ default-key "rndc"; }};\n')
        server = ("-s", "127.0.0.1", "-p", str(self.control))
        _output("rndc", "-c", str(config), *server, *command)

    def until_written(self, text: str) -> None:
        """Wait until the zone's file holds `text`: `rndc` returns before it is written, and nothing tells."""
        deadline = time.monotonic() + 60
        while text not in (self.directory / f"{ZONE}.zone").read_text():
            assert time.monotonic() < deadline, f"named has not written {text}"
            time.sleep(0.01)  # see above: nothing tells

    def dig(self, name: str, record_type: str = "A", *, zone: str = ZONE, short: bool = True) -> list[str]:
        """What another client sees, as sorted lines."""
        full = name if name.endswith(".") else f"{name}.{zone}."
        what = ["+short"] if short else ["+noall", "+answer"]
        server = ("@127.0.0.1", "-p", str(self.port), "+norecurse", "+tcp")
        found = _output("dig", *server, *what, full, record_type).splitlines()
        return sorted(line for line in found if line and not line.startswith(";"))

    def serial(self, zone: str = ZONE) -> int:
        return int(self.dig(f"{zone}.", "SOA")[0].split()[2])

    def nsupdate(self, *lines: str, zone: str = ZONE, key: str = "") -> None:
        """A change that somebody else makes."""
        changes = "".join(f"{line}\n" for line in lines)
        script = f"server 127.0.0.1 {self.port}\nzone {zone}\n{key}{changes}send\n"
        _output("nsupdate", "-v", stdin=script)


def _output(*command: str, stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout


NamedFactory = Callable[..., Named]


@pytest.fixture
def start_named(tmp_path: Path) -> Iterator[NamedFactory]:
    """Starts name servers with the zones asked for, and ends them."""
    if shutil.which("named") is None:
        pytest.skip("named is not installed: apt-get install bind9 bind9-dnsutils")
    running: list[Named] = []

    def start(
        zones: dict[str, str] | None = None, options: str = "", files: dict[str, str] | None = None
    ) -> Named:
        directory = tmp_path / f"named{len(running)}"
        directory.mkdir()
        named = Named(directory, zones or {ZONE: "allow-update { any; };"}, options, files or {})
        running.append(named)
        return named

    try:
        yield start
    finally:
        for named in running:
            named.stop()


@pytest.fixture
def named(start_named: NamedFactory) -> Named:
    """A name server for `local.gardener.cloud` that lets everybody change it."""
    return start_named()


def settings(*servers: str, **more: object) -> DnsSettings:
    """Settings for one zone; `more` is about the zone, except what is about all."""
    general = {key: more.pop(key) for key in list(more) if key in DnsSettings.model_fields}
    zone = {"name": ZONE, "servers": list(servers)} | more
    return DnsSettings.model_validate({"zones": [zone]} | general)


def rrset(name: str, record_type: RecordType, *values: str, ttl: int = 60) -> RecordSet:
    """An RRset in the zone of the tests."""
    return RecordSet(RecordKey(f"{name}.{ZONE}", record_type), ttl, values)


Opener = Callable[..., Nameserver]


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    """Makes clients, and closes them."""
    made: list[Nameserver] = []

    def make(dns: DnsSettings) -> Nameserver:
        made.append(Nameserver(dns))
        return made[-1]

    yield make
    for nameserver in made:
        await nameserver.aclose()


@pytest.fixture
def nameserver(named: Named, opened: Opener) -> Nameserver:
    """A client of `named`."""
    return opened(settings(named.server))


async def persist(nameserver: Nameserver, wanted: RecordSet) -> None:
    """Write `wanted` as a controller would: again after every passing error."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await nameserver.replace(ZONE, wanted)
            except TransientError as error:
                await asyncio.sleep(error.retry_after or 0.05)  # as a controller does
