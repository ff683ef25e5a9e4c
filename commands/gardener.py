"""`windowbox gardener`."""

from __future__ import annotations

from commands import checkout

gardener = checkout.command(
    "gardener", "tools.gardener.commands", "A real Gardener in a sandbox of its own.",
    "clone it, and run `make setup` there",
)  # fmt: skip
