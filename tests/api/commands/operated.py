"""windowbox at work, asked by its command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from bus import streams
from bus.transport.connection import connected
from commands.cli import cli
from sandbox import processes
from tests.e2e import client
from tests.e2e.client import Space
from tests.e2e.witness import Witness, witnessing
from tests.support import forked, servers
from tests.support.running import eventually
from tests.support.servers import ControlPlane, NameServer
from windowbox.errors import WindowboxError
from windowbox.settings.bussettings import Access

ROOT = Path(__file__).parents[3]
PATIENCE = 120.0


@dataclass(frozen=True)
class CommandLine:
    """`windowbox` with the settings of an operator."""

    settings: Path
    variables: dict[str, str]

    def __call__(self, *arguments: str, expect: int = 0) -> str:
        """What the command printed; its errors too, if it was expected to fail."""
        known = {k: v for k, v in os.environ.items() if not k.startswith(("WINDOWBOX_", "NATS_"))}
        environment = {**known, "WINDOWBOX_SETTINGS": str(self.settings), **self.variables}
        answer = forked.run(*arguments, environment=environment, folder=ROOT, timeout=60)
        assert answer.returncode == expect, answer.stdout + answer.stderr
        return answer.stdout if expect == 0 else answer.stdout + answer.stderr

    def here(self, *arguments: str) -> Result:
        """The command within this process: faster, for what has to do with its words only."""
        return CliRunner().invoke(cli, arguments, env={"WINDOWBOX_SETTINGS": str(self.settings)})

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def until(self, *arguments: str, shows: Callable[[Any], object]) -> Any:
        """What the command tells as JSON, once it shows what is waited for."""
        limit = time.monotonic() + PATIENCE
        while not shows(found := self.json(*arguments)):
            assert time.monotonic() < limit, found
            time.sleep(0.1)  # a command shows what is, and does not wait for it
        return found


@dataclass(frozen=True)
class Operated:
    """A deployment in one process, and those who use it."""

    windowbox: CommandLine
    nats: str
    plane: ControlPlane
    named: NameServer
    witness: Witness

    def space(self) -> Space:
        return client.space(self.plane.api, self.witness, self.named.zone)


@contextlib.contextmanager
def operated(plane: ControlPlane, named: NameServer, folder: Path) -> Iterator[Operated]:
    (folder / "nats").mkdir(parents=True)
    monitor = processes.free_port()
    assert named.key
    with servers.nats_server(folder / "nats", options=(f"--http_port={monitor}",)) as nats:
        settings = folder / "windowbox.yaml"
        zone = {"name": named.zone, "servers": [named.address], "key": named.key.settings()}
        content = {
            "nats": {"url": nats},
            "objects": {"versions": 16},  # `trace` tells the whole story
            "cluster": {"kubeconfig": str(plane.kubeconfig), "files": {"lab": str(plane.kubeconfig)}},
            "egress": {"allowed": ["127.0.0.0/8"]},
            "dns": {"zones": [zone]},
        }
        settings.write_text(yaml.safe_dump(content))
        program = [sys.executable, "-m", "windowbox", "run", "--settings", str(settings)]
        running = processes.start(program, folder / "run.log")
        command_line = CommandLine(settings, {"NATS_MONITOR_URL": f"http://127.0.0.1:{monitor}"})
        try:
            asyncio.run(_until_ready(nats))
            with witnessing(plane.kubeconfig) as witness:
                yield Operated(command_line, nats, plane, named, witness)
        finally:
            servers.end(running)


async def _until_ready(nats: str) -> None:
    """Wait until the last bucket of the bus is there."""

    async def ready() -> bool:
        with contextlib.suppress(WindowboxError):
            async with connected(Access(nats, name="test")) as bus:
                await bus.api(f"STREAM.INFO.KV_{streams.EDGES}")
                return True
        return False

    await eventually(ready)
