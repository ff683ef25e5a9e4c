"""`python -m sandbox.simulated`: register simulated Nodes, then simulate them until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import resource
import signal
from pathlib import Path

import uvloop

from sandbox.simulated import nodes
from sandbox.simulated.simulator import Simulator
from windowbox.clients.kubernetes import kube
from windowbox.errors import TransientError

logger = logging.getLogger(__name__)

_AGAIN = 0.5


async def _main(kubeconfig: Path, count: int, network: str) -> None:
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with kube.from_file(kubeconfig) as opened:
            while True:
                try:
                    await nodes.register(opened, count, network)
                    break
                except TransientError as error:
                    logger.warning("nodes cannot be registered, again in %.1f s: %s", _AGAIN, error)
                    await asyncio.sleep(_AGAIN)
            await Simulator(opened).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m sandbox.simulated", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=0, help="How many Nodes to register.")
    parser.add_argument("--network", default="127.77.0.0/24", help="The subnet of their addresses.")
    parser.add_argument("--debug", action="store_true", help="Log every change.")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if arguments.debug:
        for room in ("sandbox", "windowbox"):
            logging.getLogger(room).setLevel(logging.DEBUG)
    # Every port of every node is a socket.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS calls the limit infinite, and refuses infinity
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_main(arguments.kubeconfig, arguments.nodes, arguments.network))
