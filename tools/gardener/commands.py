"""`windowbox gardener`: a real Gardener on a sandbox of its own."""

from __future__ import annotations

import click


@click.group(epilog="\b\nExample:\n  windowbox gardener build   compile Gardener; once, about half an hour")
def gardener() -> None:
    """A real Gardener, unmodified, in a sandbox of its own."""


@gardener.command(short_help="Compile the programs that are missing.")
@click.option("--tests", is_flag=True, help="Also Gardener's e2e tests, and older versions of Kubernetes.")
def build(tests: bool) -> None:
    """Compile the programs of Gardener, and those that it deploys, unless the cache has them."""
    from sandbox import progress
    from tools.gardener import programs

    programs.build(progress.Progress(click.echo, introduction=progress.ONCE), tests=tests)
