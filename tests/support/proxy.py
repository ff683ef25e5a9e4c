"""A TCP proxy whose connections can be cut, or left hanging."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Proxy:
    """Forwards connections to `port`, until `cut`, `refuse`, `hang` or `strand`."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.opened = 0
        self.recorded: bytearray | None = None
        """What clients have sent since a test has put an array here."""
        self._target = target
        self._refusing = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._stranded: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Break all connections. New ones are accepted."""
        for writer in list(self._writers):
            writer.transport.abort()

    def refuse(self) -> None:
        """Break all connections, also those that are being opened, until `resume`."""
        self._refusing = True
        self.cut()

    def hang(self) -> None:
        """Forward nothing, and keep connections open."""
        self._flowing.clear()

    def strand(self) -> None:
        """Pass nothing more on over the connections that there are, without closing them. New ones work."""
        self._stranded |= self._writers

    def resume(self) -> None:
        self._refusing = False
        self._flowing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        with contextlib.suppress(OSError):
            onward_reader, onward = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, onward}
            if self._refusing:
                self.cut()
            sent = self._pass(reader, onward, record=True)
            await asyncio.gather(sent, self._pass(onward_reader, writer))
        writer.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, record: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if record and self.recorded is not None:
                    self.recorded += data
                await self._flowing.wait()
                if writer in self._stranded:
                    continue
                writer.write(data)
                await writer.drain()
        writer.close()
        self._writers.discard(writer)
        self._stranded.discard(writer)


@contextlib.asynccontextmanager
async def proxy(target: int) -> AsyncIterator[Proxy]:
    """A proxy to `target` on this machine."""
    made = Proxy(target)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.resume()
        made.cut()
        server.close()
        await server.wait_closed()
