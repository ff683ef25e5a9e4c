"""Options of commands that query the bus: settings from a file, the environment, or the running sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from bus.clusters.registry import Registry
from bus.transport import connection
from bus.transport.connection import Bus
from sandbox import roles
from sandbox import state as states
from sandbox.state import State
from windowbox.errors import Missing
from windowbox.settings import settings
from windowbox.settings.settings import Settings

_Function = TypeVar("_Function", bound=Callable[..., Any])

FINDING = """
\b
Uses the bus of --settings FILE, else of WINDOWBOX_SETTINGS, else of the running sandbox."""
"""The end of the help of each command that queries the bus."""

_PATIENCE = 5.0


def settings_options(command: _Function) -> _Function:
    """`--settings` and `--name`: which bus to query."""
    file = click.option(
        "--settings", "file", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Settings of an operator; a YAML file.",
    )  # fmt: skip
    name = click.option("--name", metavar="NAME", help="Which sandbox, if there are several.")
    return file(name(command))


def loaded(file: Path | None, name: str | None = None) -> Settings:
    """The settings of a command: of the file, else of the environment, else of the running sandbox."""
    if path := file or _named_by_environment(name):
        return settings.load(path)
    folder = states.folder(name)
    state = states.read(folder)
    if state is None or not state.running():
        raise Missing(
            f"no bus: the sandbox {folder.name!r} does not run (in {folder.parent}). "
            f"Start it with `{states.command('up', folder)}`, "
            "or say where the bus is with --settings FILE or WINDOWBOX_SETTINGS"
        )
    return settings.load(roles.settings_file(folder, "operator"))


def connected(settings: Settings, command: str) -> AbstractAsyncContextManager[Bus]:
    """A connection to the bus for one command."""
    return connection.connected(settings.nats.access(f"windowbox {command}"), patience=_PATIENCE)


@asynccontextmanager
async def following(registry: Registry) -> AsyncIterator[None]:
    """Keep the registry of member clusters up to date during the block; it is complete from the start."""
    task = asyncio.create_task(registry.run(), name="registry")
    try:
        await registry.complete.wait()
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def monitor(file: Path | None, name: str | None = None) -> str | None:
    """The monitoring URL of the NATS server: NATS_MONITOR_URL, or that of the sandbox."""
    url = os.environ.get("NATS_MONITOR_URL")
    if url and not name:
        return url
    if file or _named_by_environment(name):
        return None

    state = states.read(states.folder(name))
    return monitor_of(state) if state else None


def monitor_of(state: State) -> str | None:
    """The monitoring URL of a sandbox's NATS server."""
    port = state.ports.get("nats-monitor")
    return f"http://127.0.0.1:{port}" if port else None


def _named_by_environment(name: str | None) -> Path | None:
    path = os.environ.get("WINDOWBOX_SETTINGS")
    if name or not path:
        return None
    if not Path(path).is_file():
        raise Missing(f"WINDOWBOX_SETTINGS names {path}, which is not a file: correct it, or unset it")
    return Path(path)
