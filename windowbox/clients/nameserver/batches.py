"""Sends one batch of changes to the server and finds the outcome of each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from windowbox.clients.nameserver import classify, messages, ownership
from windowbox.clients.nameserver.changes import Delete, Item, Replace
from windowbox.clients.nameserver.classify import PERSON_SOON, Failure, Scope, ZoneFailed
from windowbox.clients.nameserver.connection import Connection
from windowbox.clients.nameserver.messages import Packed, Update
from windowbox.clients.nameserver.ownership import Adoptable, Claim, Held, Unclaimed
from windowbox.errors import Conflict, Malformed, Refused, Unreachable

logger = logging.getLogger(__name__)

_ALIKE = 8
"""After so many single refusals, and no acceptance, the rest of the batch is not tried."""
_PREREQUISITES = {messages.YXDOMAIN, messages.YXRRSET, messages.NXRRSET, messages.NXDOMAIN}


@dataclass(slots=True)
class Counters:
    messages: int = 0
    rrsets: int = 0
    bisections: int = 0
    last_rtt: float = 0.0


@dataclass(frozen=True, slots=True)
class Apex:
    """The SOA and the name servers of a zone."""

    serial: int
    hosts: frozenset[str]
    """Names of its own name servers, whose addresses must not be changed."""


async def look(connection: Connection, zone: str) -> Apex:
    """Raises ZoneFailed unless the server serves the zone, and lets us change it."""
    apex = messages.pack_name(zone)
    requests = [messages.query(apex, messages.SOA), messages.query(apex, messages.NS), Update(zone).finish()]
    soa, servers, empty = await connection.exchange(requests)
    failure = classify.zone_failure(soa, connection.server, zone)
    if failure is None and empty.rcode:
        failure = classify.update_failure(empty.rcode, connection.server, zone)
    if failure is not None:
        raise ZoneFailed(replace(failure, scope=Scope.ZONE))
    (data,), _ = soa.values(apex, messages.SOA)
    hosts = {messages.name_text(record.rdata) for record in servers.answers if record.type == messages.NS}
    return Apex(messages.serial(data), frozenset(hosts))


def as_wanted(record: Packed, reply: messages.Reply) -> bool:
    values, ttl = reply.values(record.name, record.type)
    return reply.authoritative and ttl == record.ttl and values == set(record.rdatas)


async def read_back(connection: Connection, records: Sequence[Packed]) -> list[messages.Reply]:
    """What the server answers for `records`.

    A signature costs both sides more than all the rest of a query, so one is spent only where the answer
    without it is not as wanted: some servers show strangers another view, or nothing.
    """
    queries = [messages.query(record.name, record.type) for record in records]
    if not connection.plain_queries:
        return await connection.exchange(queries)
    replies = await connection.exchange(queries, signed=False)
    doubtful = [place for place, record in enumerate(records) if not as_wanted(record, replies[place])]
    second = await connection.exchange([queries[place] for place in doubtful])
    for place, reply in zip(doubtful, second, strict=True):
        replies[place] = reply
        connection.plain_queries &= not as_wanted(records[place], reply)
    return replies


class BatchSender:
    """One message is one transaction: one bad record makes the server refuse all.

    So what is refused is split in halves until the culprits stand alone, and the others get through.
    """

    def __init__(self, connection: Connection, zone: str, hosts: frozenset[str], counters: Counters) -> None:
        self._connection = connection
        self._zone = zone
        self._hosts = hosts
        self._counters = counters
        self._claims: dict[int, Claim] = {}
        self._looked = False

    async def send(self, batch: Sequence[Item]) -> None:
        """Settle every item of `batch`. Raises Unreachable or ZoneFailed, and then some are not settled."""
        self._protect_hosts(batch)
        await self._learn_owners([item for item in batch if item.change.owner and not item.settled])
        parts = [[item for item in batch if not item.settled]]
        alike = 0
        while parts:
            part = parts.pop()
            failure = await self._change(part)
            if failure is None:
                alike = 0
            elif len(part) == 1:
                alike += 1
                retry = await self._settle_refused(part[0], failure)
                parts += [[part[0]]] if retry else []
            elif alike >= _ALIKE:
                _fail_each(part, failure)
            else:
                self._counters.bisections += 1
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]

    def _protect_hosts(self, batch: Sequence[Item]) -> None:
        for item in batch:
            if item.key.name in self._hosts and item.key.type != "TXT":
                text = f"{item.key.name} is a name server of {self._zone} itself: choose another name"
                item.fail(Failure(Refused, text, classify.PERSON))

    async def _learn_owners(self, items: Sequence[Item]) -> None:
        requests = [
            messages.query(messages.pack_name(ownership.mark_name(item.key, self._zone)), messages.TXT)
            for item in items
        ]
        for item, reply in zip(items, await self._connection.exchange(requests), strict=True):
            self._judge_owner(item, ownership.owner_found(reply), Held(ownership.mark_values(reply)))

    def _judge_owner(self, item: Item, found: str | None, held: Held) -> None:
        match item.change, found:
            case Replace(), None:
                self._claims[id(item)] = Unclaimed()
            case Delete(unless_changed=values), None if values:
                self._claims[id(item)] = Adoptable()
            case Delete(), None:
                logger.info("%s: not changed, as it has no owner's mark", item.key)
                item.succeed()
            case Replace(owner=me, previous_owner=before), str(owner) if owner in (me, before):
                self._claims[id(item)] = held
            case Delete(owner=me), str(owner) if owner == me:
                self._claims[id(item)] = held
            case Delete(), _:
                logger.info("%s: not changed, as it belongs to %s", item.key, found)
                item.succeed()
            case _:
                text = f"{_named(item)} belongs to {found}: delete it there, or choose another name"
                item.fail(Failure(Refused, text, PERSON_SOON))

    async def _change(self, part: Sequence[Item]) -> Failure | None:
        """Send one update. None if it was made: then each item is settled."""
        if not part:
            return None
        try:
            update = self._written(part)
        except Malformed as error:
            return Failure(Malformed, str(error))
        [reply] = await self._connection.exchange([update])
        self._counters.messages += 1
        self._counters.last_rtt = self._connection.last_rtt
        if reply.rcode == messages.NOERROR:
            self._counters.rrsets += len(part)
            await self._prove(part)
            return None
        failure = classify.update_failure(reply.rcode, self._connection.server, self._zone)
        await self._suspect_zone(failure, reply.rcode)
        return failure

    async def _suspect_zone(self, failure: Failure, rcode: int) -> None:
        """An update without changes tells whether the server refuses these records, or all."""
        if failure.scope is Scope.ZONE:
            raise ZoneFailed(failure)
        if rcode not in _PREREQUISITES and not self._looked:
            await look(self._connection, self._zone)
            self._looked = True

    def _written(self, part: Sequence[Item]) -> bytes:
        update = Update(self._zone)
        for item in part:
            ownership.guard(update, item.change, self._claims.get(id(item)), self._zone)
        for item in part:
            ownership.write(update, item.change, self._zone)
        return update.finish()

    async def _settle_refused(self, item: Item, failure: Failure) -> bool:
        """Settle a change that was refused alone. True if it shall be tried in another way instead."""
        prerequisite = failure.kind is Conflict
        match item.change, self._claims.get(id(item)):
            case Replace(), Unclaimed() if prerequisite:
                self._claims[id(item)] = Adoptable()
                return True
            case Replace(), Adoptable() | Held() as before if prerequisite:
                return await self._look_again(item, before, failure)
            case Delete(), _ if prerequisite:
                item.succeed()  # it is gone, belongs to another owner, or was written for another object
            case _:
                item.fail(replace(failure, text=f"{_named(item)}: {failure.text}"))
        return False

    async def _look_again(self, item: Item, before: Claim, failure: Failure) -> bool:
        """Whether the mark has changed meanwhile, most likely for another object of the same owner."""
        await self._learn_owners([item])
        match before, self._claims[id(item)]:
            case _ if item.settled:
                return False
            case Adoptable(), Unclaimed():
                text = (
                    f"{_named(item)} exists already and bears no owner's mark: delete it, "
                    "or give it the values wanted so that it is adopted"
                )
                item.fail(Failure(Refused, text, PERSON_SOON))
                return False
            case _, now if now == before:
                item.fail(replace(failure, text=f"{_named(item)}: {failure.text}"))
                return False
        return True

    async def _prove(self, part: Sequence[Item]) -> None:
        """NOERROR is no proof: a server has to ignore some changes silently. So read them back."""
        written = [item for item in part if isinstance(item.change, Replace)]
        removed = [item for item in part if isinstance(item.change, Delete)]
        replies = await read_back(self._connection, [item.change.record for item in written])
        for item, reply in zip(written, replies, strict=True):
            if as_wanted(item.change.record, reply):
                item.succeed()
            else:
                await self._explain(item, reply)
        if removed:
            await self._prove_absent(removed)

    def _absence(self, removed: Sequence[Item]) -> bytes:
        # A query could be answered by a wildcard; a condition looks at what the zone really holds.
        update = Update(self._zone)
        for item in removed:
            update.guard_absent(item.change.record.owner, item.change.record.type)
        return update.finish()

    async def _prove_absent(self, removed: Sequence[Item]) -> None:
        replies = await self._connection.exchange([self._absence(removed)]) * len(removed)
        if replies[0].rcode:
            replies = await self._connection.exchange([self._absence([item]) for item in removed])
        for item, answer in zip(removed, replies, strict=True):
            if answer.rcode == messages.NOERROR:
                item.succeed()
            else:
                text = f"{_named(item)} was written again by somebody else right after it was deleted"
                item.fail(Failure(Conflict, text))

    async def _explain(self, item: Item, reply: messages.Reply) -> None:
        name, record = item.key.name, item.change.record
        soa, everything = await self._connection.exchange(
            [messages.query(record.name, messages.SOA), messages.query(record.name, messages.ANY)]
        )
        try:
            failure = classify.diagnosis(record, name, self._zone, reply, soa, everything)
        except ValueError as error:
            raise Unreachable(f"{self._connection.server} answers what nobody can read: {error}") from error
        item.fail(failure)


def _fail_each(items: Sequence[Item], failure: Failure) -> None:
    for item in items:
        item.fail(failure)


def _named(item: Item) -> str:
    return f"{item.key.name} {item.key.type}"
