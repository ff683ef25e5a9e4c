"""nats-py's client with fewer tasks: one for reading, and none for each subscription and each flush.

nats-py hands each message to a task by a queue, and each flush to another task. An object passes here some
twenty times, and most messages come alone, so that both tasks are woken for each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from bus.transport import answers

Listener = Callable[[Msg], None]

_ORIGIN = f"\r\n{answers.ORIGIN}:".encode()
_VERSION = len("NATS/1.0")
_CODE = slice(_VERSION + 1, _VERSION + 4)
_UNSENT = 1 << 16
"""Bytes that the socket has not taken, from which on the one who sends has to wait."""


class DirectClient(Client):
    """Calls listeners where messages are read, and writes at the end of the event loop's turn."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: dict[int, Listener] = {}
        self._writing = False

    async def listen(self, subject: str, act: Listener) -> Subscription:
        """Call `act` with each message of a new inbox. It must return at once, and raise nothing.

        Nobody knows the inbox before the server does, so that no message can come before its listener.
        """
        subscription = await self.subscribe(subject, pending_msgs_limit=-1, pending_bytes_limit=-1)
        self._listeners[subscription._id] = act
        return subscription

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._listeners.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        listener = self._listeners.get(sid)
        if listener is None:
            await super()._process_msg(sid, subject, reply, data, headers or b"")
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        listener(
            Msg(
                _client=self,
                subject=subject.decode(),
                reply=reply.decode(),
                data=data,
                headers=parsed(headers) if headers else None,
                _sid=sid,
            )
        )

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """Have written what waits to be sent: at the end of this turn, together with what else it sends."""
        if force_flush:
            return await super()._flush_pending(force_flush=True)
        if self.is_connected and not self._writing:
            self._writing = True
            asyncio.get_running_loop().call_soon(self._write)
        return None

    def _write(self) -> None:
        self._writing = False
        if not self._pending or not self.is_connected or not isinstance(self._transport, TcpTransport):
            return  # what waits is sent when the connection is back
        writer = self._transport._io_writer
        if writer is None or writer.transport.is_closing():
            return
        if writer.transport.get_write_buffer_size() < _UNSENT:
            writer.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        elif self._flush_queue and self._flush_queue.empty():
            # nats-py's task waits until the socket has room, and those who send much wait for that task.
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())


def parsed(block: bytes) -> dict[str, str]:
    """The headers of a message, with its status and description if the server has put them in front."""
    first, *lines = block.decode("utf-8", "replace").split("\r\n")
    found: dict[str, str] = {}
    if (status := first[_CODE].strip()).isdigit():
        found["Status"] = status
        if description := first[_CODE.stop :].strip():
            found["Description"] = description
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip()] = value.strip()
    if block.count(_ORIGIN) > 1:
        found[answers.FORGED] = "1"
    return found
