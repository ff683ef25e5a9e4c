"""The queue of one zone: batches of changes over one connection."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from windowbox.clients.nameserver import connection as connections
from windowbox.clients.nameserver.batches import BatchSender, Counters, probe
from windowbox.clients.nameserver.changes import Change, ChangeQueue, Item
from windowbox.clients.nameserver.classify import Failure, ZoneFailed
from windowbox.clients.nameserver.connection import Connection, TimedOut
from windowbox.clients.nameserver.tsig import TsigKey
from windowbox.errors import Unreachable
from windowbox.settings.dnssettings import DnsSettings, ZoneSettings, split_server

logger = logging.getLogger(__name__)

IN_FLIGHT = 2
"""While one message is in flight the next batch collects; a third would only wait in the server."""
PROBE_INTERVAL = 15.0
"""BIND ends connections that were idle for 30 s."""
UNUSED_AFTER = 600.0
LONGEST_PROBE_INTERVAL = 600.0
FIRST_DELAY, LONGEST_DELAY = 0.2, 30.0
MOST_LOSSES = 3
"""Lost connections after which a change that was in flight each time fails."""


@dataclass(frozen=True, slots=True)
class ZoneStats:
    """Counters and state of a zone's queue, for metrics."""

    zone: str
    messages: int
    rrsets: int
    bisections: int
    reconnections: int
    waiting: int
    in_flight: int
    last_rtt: float
    connected: bool
    breaker_open: bool


Answer = TypeVar("Answer")


class ZoneQueue:
    """Sends at once when nothing is in flight, and collects meanwhile: group commit, without a time window.

    One connection keeps the order of changes. A name in flight blocks its further changes.
    """

    def __init__(
        self,
        zone: ZoneSettings,
        key: TsigKey | None,
        settings: DnsSettings,
        announce: Callable[[str], None],
        *,
        kept: bool,
    ) -> None:
        self._zone = zone
        self._key = key
        self._settings = settings
        self._announce = announce
        self._kept = kept
        self._changes = ChangeQueue()
        self._counters = Counters()
        self._wake = asyncio.Event()
        self._up = asyncio.Event()
        self._servers = deque(zone.servers)
        """The next one to try first."""
        self._untried: list[tuple[str, int, str]] = []
        """Addresses of the server tried last."""
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._hosts: frozenset[str] = frozenset()
        self._serial: int | None = None
        self._outage: Failure | None = None
        self._away: Failure | None = None
        self._probe_interval = settings.probe_interval
        self._refusals = 0
        """Servers in a row that were reached, but refuse changes of the zone."""
        self._most = zone.max_rrsets
        self._in_flight = 0
        self._connections = 0
        self._next_probe = 0.0
        self._last_use = 0.0

    def start(self) -> None:
        """Connect, and stay connected. Idempotent."""
        self._last_use = asyncio.get_running_loop().time()
        if not self.running:
            self._away = None
            self._up.clear()
            self._task = asyncio.create_task(self._run(), name=f"name server of {self._zone.name}")
            self._task.add_done_callback(self._stopped)

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def submit(self, change: Change) -> None:
        """Return when the change, or a newer one of the same record set, is proved."""
        self.start()
        await self._changes.room()
        if not self.running:
            raise self._closed().error()
        if problem := self._outage or self._away:
            raise problem.error()
        waiter = asyncio.get_running_loop().create_future()
        self._changes.add(change, waiter)
        self._wake.set()
        await waiter

    async def ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """The answers to a question, repeated once if the connection ends meanwhile.

        Raises Unreachable if no server can be reached in time.
        """
        self.start()
        try:
            try:
                return await question(await self._connected())
            except Unreachable:
                return await question(await self._connected())
        except ZoneFailed as failed:
            raise failed.failure.error() from failed

    def stats(self) -> ZoneStats:
        return ZoneStats(
            zone=self._zone.name,
            messages=self._counters.messages,
            rrsets=self._counters.rrsets,
            bisections=self._counters.bisections,
            reconnections=max(0, self._connections - 1),
            waiting=self._changes.size,
            in_flight=self._in_flight,
            last_rtt=self._counters.last_rtt,
            connected=self.running and self._up.is_set(),
            breaker_open=self._outage is not None,
        )

    async def aclose(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _connected(self) -> Connection:
        if self._away:
            raise self._away.error()
        try:
            async with asyncio.timeout(self._settings.patience):
                await self._up.wait()
        except TimeoutError:
            text = f"no server of zone {self._zone.name} could be reached in time"
            raise (self._away or Failure(Unreachable, text)).error() from None
        if self._away:
            raise self._away.error()
        assert self._connection is not None
        return self._connection

    def _closed(self) -> Failure:
        return Failure(Unreachable, f"the queue of zone {self._zone.name} was closed")

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """Fail all waiters once the queue has ended, for any reason."""
        if self._connection:
            self._connection.close()
        self._away = self._closed()
        self._changes.fail_all(self._away)
        self._up.set()  # wakes callers that wait for a connection
        if not task.cancelled() and (error := task.exception()):
            logger.error("zone %s: its queue failed", self._zone.name, exc_info=error)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as senders:
            while not self._unused():
                connection = self._connection = await self._connect()
                started = loop.time()
                self._away = None
                self._connections += 1
                self._up.set()
                if self._connections > 1:
                    self._announce(self._zone.name)
                try:
                    while connection.alive and not self._unused():
                        self._wake.clear()
                        while self._in_flight < IN_FLIGHT and self._changes.size and connection.alive:
                            batch = self._changes.take(self._most, self._zone.max_octets)
                            if not batch:
                                break
                            self._in_flight += 1
                            self._last_use = loop.time()
                            sending = self._send_batch(connection, batch)
                            senders.create_task(sending, name=f"batch for {self._zone.name}")
                        try:
                            async with asyncio.timeout_at(self._next_probe):
                                await self._wake.wait()
                        except TimeoutError:
                            if self._outage is not None and len(self._servers) > 1:
                                self._refusals = 0
                                connection.close(Unreachable(self._outage.text))  # another server may work
                            else:
                                await self._probe(connection)
                finally:
                    self._up.clear()
                    connection.close()
                if loop.time() - started < 1:
                    await asyncio.sleep(FIRST_DELAY)  # the server closes each new connection at once

    def _unused(self) -> bool:
        idle = asyncio.get_running_loop().time() - self._last_use > UNUSED_AFTER
        return idle and not self._kept and not self._changes.size and not self._in_flight

    async def _connect(self) -> Connection:
        """Connect to the servers in turn until one answers. After `patience`, changes fail meanwhile."""
        loop = asyncio.get_running_loop()
        given_up = loop.time() + self._settings.patience
        delay = FIRST_DELAY
        while True:
            try:
                if not self._untried:
                    self._servers.rotate(-1)
                    server = self._servers[-1]
                    found = await connections.addresses(*split_server(server))
                    self._untried = [(host, port, server) for host, port in found]
                timeout = self._settings.message_timeout
                connection = await connections.connected(*self._untried.pop(0), self._key, timeout)
                connection.ended.add_done_callback(lambda _: self._wake.set())
                await self._probe(connection)
                if connection.alive:
                    return connection
                raise connection.ended.result()
            except Unreachable as error:
                left = given_up - loop.time()
                if left <= 0:
                    if self._away is None:
                        logger.warning("zone %s: %s", self._zone.name, error)
                    self._away = Failure(Unreachable, str(error), retry_after=delay)
                    self._changes.fail_all(self._away)
                pause = delay * random.uniform(0.5, 1)
                await asyncio.sleep(min(pause, left) if left > 0 else pause)
                delay = min(2 * delay, LONGEST_DELAY)

    async def _send_batch(self, connection: Connection, batch: list[Item]) -> None:
        sender = BatchSender(connection, self._zone.name, self._hosts, self._counters)
        try:
            await sender.send([item for item in batch if not item.abandoned])
            self._most = min(self._zone.max_rrsets, self._most + 10)
        except Unreachable as error:
            connection.close(error)
            if isinstance(error, TimedOut):
                self._most = max(1, self._most // 2)
            # Requeue changes in flight: the server may have applied them, and repeating them is harmless.
            open_items = [item for item in batch if not item.settled and not item.abandoned]
            for item in open_items:
                item.losses += 1
            lost = Failure(Unreachable, str(error))
            _fail([item for item in open_items if item.losses >= MOST_LOSSES], lost)
            self._changes.requeue(item for item in open_items if not item.settled)
        except ZoneFailed as failed:
            self._open_breaker(failed.failure)
            _fail(batch, failed.failure)
        except BaseException:
            _fail(batch, self._closed())
            raise
        finally:
            self._in_flight -= 1
            self._changes.release(batch)
            self._wake.set()

    async def _probe(self, connection: Connection) -> None:
        """Check the zone; this also keeps the connection from idling."""
        try:
            apex = await probe(connection, self._zone.name)
        except Unreachable as error:
            connection.close(error)
        except ZoneFailed as failed:
            self._refusals += 1
            if self._refusals < len(self._servers):
                connection.close(Unreachable(failed.failure.text))
            else:
                self._open_breaker(failed.failure)
        else:
            self._refusals = 0
            self._next_probe = asyncio.get_running_loop().time() + PROBE_INTERVAL
            if self._outage is not None:
                logger.info("zone %s takes changes again", self._zone.name)
            self._outage = None
            self._hosts = apex.hosts
            before, self._serial = self._serial, apex.serial
            # Serials wrap around: half of all 32-bit numbers are behind each.
            if before is not None and (apex.serial - before) % 2**32 >= 2**31:
                logger.warning("zone %s went back from serial %s to %s", self._zone.name, before, apex.serial)
                self._announce(self._zone.name)

    def _open_breaker(self, failure: Failure) -> None:
        """No change can succeed now: fail all waiters, and probe with back-off (a circuit breaker)."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._next_probe and self._outage is not None:
            return
        if self._outage is None:
            self._probe_interval = self._settings.probe_interval
            logger.error("zone %s: %s", self._zone.name, failure.text)
        self._outage = replace(failure, retry_after=self._probe_interval)
        self._next_probe = loop.time() + self._probe_interval
        self._probe_interval = min(2 * self._probe_interval, LONGEST_PROBE_INTERVAL)
        self._changes.fail_all(self._outage)


def _fail(items: Iterable[Item], failure: Failure) -> None:
    for item in items:
        if not item.settled:
            item.fail(failure)
