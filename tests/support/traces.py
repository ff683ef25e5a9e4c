"""What `windowbox trace` tells, as people call it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from tests.api.commands.operated import CommandLine
from tests.support.kindworld import Client


async def waiting(client: Client, kind: str, name: str, folder: Path) -> list[dict[str, Any]]:
    """The lines that tell what the object waits for, once every wish has been reconciled."""
    await client.world.quiet()
    settings = folder / "operator.yaml"
    settings.write_text(yaml.safe_dump({"nats": {"url": client.world.nats.url}}))
    command = CommandLine(settings, {})
    reported = await asyncio.to_thread(command.json, "trace", kind, f"{client.namespace}/{name}")
    return list(reported["waiting"])
