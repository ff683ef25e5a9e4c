"""The time that Envoy saves by Protobuf's binary form, for one more listener beside many.

`python -m tools.bench.loadbalancers.formats [LISTENERS]` starts an Envoy for each form, without windowbox.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import orjson

from tools.bench.usage import usage
from windowbox.models.loadbalancers import Endpoint, Listener, LoadBalancer
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.envoy import admin, bootstrap, protobuf, resources
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.process import Processes

_ADDRESS = "127.0.0.1"
_FIRST_PORT = 20_000
_TIMES = 7
_NODES = tuple(Endpoint("127.0.0.2", 9 + number, f"n{number}") for number in range(4))


def _files(count: int, *, as_json: bool) -> dict[str, bytes]:
    ref = ObjectRef("bench", "services", "default", "web")
    listeners = tuple(Listener(_ADDRESS, _FIRST_PORT + i, "TCP", _NODES) for i in range(count))
    made = resources.configuration([LoadBalancer(ref=ref, uid="1", listeners=listeners)], folder=".")
    files = {bootstrap.BOOTSTRAP: bootstrap.bootstrap("."), **made.files}
    if not as_json:
        return files
    written = {}
    for name, file in files.items():
        if name.endswith(".pb"):
            found = [protobuf.resource(entry) for entry in protobuf.entries(file)]
            file = orjson.dumps({"version_info": protobuf.version(file), "resources": found})
        else:
            file = file.replace(b".pb", b".json")
        written[name.replace(".pb", ".json")] = file
    return written


async def _measure(count: int, *, as_json: bool) -> tuple[float, float]:
    """Milliseconds of Envoy's CPU, and until Envoy has read what was written."""
    cpu, took = [], []
    with tempfile.TemporaryDirectory() as folder:
        attachment = Processes(Path(folder))
        envoy = await attachment.start(Order("edge", 1, _files(count, as_json=as_json)))
        try:
            await asyncio.sleep(10)  # it reads its first files
            for number in range(_TIMES):
                wanted = protobuf.version(_files(count + number + 1, as_json=False)[bootstrap.LISTENERS])
                written = _files(count + number + 1, as_json=as_json)
                names = [name for name in written if name.startswith(("cds", "lds"))]
                before, begun = usage(envoy.pid).cpu, time.perf_counter()
                await envoy.write({name: written[name] for name in names})
                while (await admin.versions(envoy))[1] != wanted:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                took.append(time.perf_counter() - begun)
                await asyncio.sleep(2)
                cpu.append(usage(envoy.pid).cpu - before)
        finally:
            await envoy.end()
    return statistics.median(cpu) * 1000, statistics.median(took) * 1000


def main(count: int) -> None:
    for form, as_json in (("binary", False), ("JSON", True)):
        cpu, took = asyncio.run(_measure(count, as_json=as_json))
        print(f"{form}: one more beside {count}: {cpu:.0f} ms of Envoy's CPU, read after {took:.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
