"""`windowbox bench`."""

from __future__ import annotations

from commands import checkout

bench = checkout.command(
    "bench", "tools.bench.commands", "Measure how fast this machine is.",
    "clone it, and run `make bench` there",
)  # fmt: skip
