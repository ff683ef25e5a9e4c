"""`python -m tools.gardener.players`: play in the cluster of a kubeconfig until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path

import uvloop

from tools.gardener.players.playing import Players
from windowbox.clients.kubernetes import kube


async def _main(kubeconfig: Path) -> None:
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with kube.from_file(kubeconfig) as opened:
            await Players(opened).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.gardener.players", description=__doc__)
    given = os.environ.get("KUBECONFIG")
    parser.add_argument("--kubeconfig", type=Path, default=given, required=not given)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    uvloop.run(_main(parser.parse_args().kubeconfig))
