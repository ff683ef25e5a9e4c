"""Sends one batch of changes to the server and finds the outcome of each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dns.message import Message
from dns.rcode import Rcode
from dns.rdatatype import RdataType
from dns.update import UpdateMessage

from windowbox.clients.nameserver import classify, messages, ownership
from windowbox.clients.nameserver.changes import Delete, Item, Replace
from windowbox.clients.nameserver.classify import PERSON, PERSON_SOON, Failure, Scope, ZoneFailed
from windowbox.clients.nameserver.connection import Connection
from windowbox.clients.nameserver.ownership import Adoptable, Claim, Held, Unclaimed
from windowbox.clients.nameserver.plainqueries import PlainQuery
from windowbox.clients.nameserver.updates import Update
from windowbox.errors import Conflict, Malformed, Refused
from windowbox.models.recordsets import RecordSet

logger = logging.getLogger(__name__)

_ALIKE = 8
"""After so many single refusals, and no acceptance, the rest of the batch is not tried."""
_PREREQUISITES = {Rcode.YXDOMAIN, Rcode.YXRRSET, Rcode.NXRRSET, Rcode.NXDOMAIN}


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


async def probe(connection: Connection, zone: str) -> Apex:
    """Raises ZoneFailed unless the server serves the zone and accepts updates of it."""
    apex = messages.name(zone)
    # An update without changes is refused like any other.
    requests = [messages.query(apex, RdataType.SOA), messages.query(apex, RdataType.NS), UpdateMessage(apex)]
    soa, servers, empty = await connection.exchange(requests)
    failure = classify.zone_failure(soa, connection.server, zone)
    if failure is None and empty.rcode():
        failure = classify.update_failure(empty.rcode(), connection.server, zone)
    if failure is not None:
        raise ZoneFailed(replace(failure, scope=Scope.ZONE))
    found = messages.answer(soa, apex, RdataType.SOA)
    assert found is not None
    hosts = messages.answer(servers, apex, RdataType.NS) or ()
    return Apex(found[0].serial, frozenset(messages.name_text(host.target) for host in hosts))


async def read_back(connection: Connection, records: Sequence[RecordSet]) -> list[Message | None]:
    """For each of `records` None if the server answers as wanted, otherwise its answer.

    A signature costs both sides more than the rest of a query, so queries are signed only where the unsigned
    answer is not as wanted: some servers show strangers another view, or nothing.
    """
    answers: list[Message | None] = [None] * len(records)
    doubtful = list(range(len(records)))
    if connection.plain_queries:
        plain = [PlainQuery(record) for record in records]
        wires = await connection.exchange_octets([query.octets for query in plain])
        doubtful = [place for place in doubtful if not plain[place].proved_by(wires[place])]
        for place in doubtful:
            reply = connection.read(wires[place], _query(records[place]))
            answers[place] = None if _as_wanted(records[place], reply) else reply
        doubtful = [place for place in doubtful if answers[place] is not None]
        if not connection.signs:
            return answers
    replies = await connection.exchange([_query(records[place]) for place in doubtful])
    for place, reply in zip(doubtful, replies, strict=True):
        found = _as_wanted(records[place], reply)
        answers[place] = None if found else reply
        connection.plain_queries &= not found
    return answers


def _query(record: RecordSet) -> Message:
    return messages.query(messages.name(record.key.name), RdataType[record.key.type])


def _as_wanted(record: RecordSet, reply: Message) -> bool:
    wanted = messages.rrset(record)
    found = messages.answer(reply, wanted.name, wanted.rdtype)
    return messages.authoritative(reply) and found is not None and (found, found.ttl) == (wanted, wanted.ttl)


class BatchSender:
    """One message is one transaction: one bad record makes the server refuse all.

    So a refused batch is bisected until the culprits stand alone, and the others get through.
    """

    def __init__(self, connection: Connection, zone: str, hosts: frozenset[str], counters: Counters) -> None:
        self._connection = connection
        self._zone = zone
        self._hosts = hosts
        self._counters = counters
        self._claims: dict[int, Claim] = {}
        self._probed = False

    async def send(self, batch: Sequence[Item]) -> None:
        """Settle every item of `batch`. After Unreachable or ZoneFailed some items are not settled."""
        for item in batch:
            if item.key.name in self._hosts and item.key.type != "TXT":
                text = f"{item.key.name} is a name server of {self._zone} itself: choose another name"
                item.fail(Failure(Refused, text, PERSON))
        await self._read_owners([item for item in batch if item.change.owner and not item.settled])
        parts = [[item for item in batch if not item.settled]]
        alike = 0
        while parts:
            part = parts.pop()
            failure = await self._change(part) if part else None
            if failure is None:
                alike = 0
            elif len(part) == 1:
                alike += 1
                if await self._retry_refused(part[0], failure):
                    parts.append(part)
            elif alike >= _ALIKE:
                for item in part:
                    item.fail(failure)
            else:
                self._counters.bisections += 1
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]

    async def _read_owners(self, items: Sequence[Item]) -> None:
        """Find the claim of each item, and settle items that another owner holds."""
        names = [messages.name(ownership.mark_name(item.key, self._zone)) for item in items]
        replies = await self._connection.exchange([messages.query(name, RdataType.TXT) for name in names])
        for item, reply in zip(items, replies, strict=True):
            owner, mark = ownership.found_mark(reply)
            match item.change, owner:
                case Replace(), None:
                    self._claims[id(item)] = Unclaimed()
                case Delete(), None:
                    logger.info("%s: not changed, as it has no owner's mark", item.key)
                    item.succeed()
                case change, _ if owner == change.owner:
                    self._claims[id(item)] = Held(mark)
                case Delete(), _:
                    logger.info("%s: not changed, as it belongs to %s", item.key, owner)
                    item.succeed()
                case _:
                    text = f"{_named(item)} belongs to {owner}: delete it there, or choose another name"
                    item.fail(Failure(Refused, text, PERSON_SOON))

    async def _change(self, part: Sequence[Item]) -> Failure | None:
        """Send one update. After None each item is settled."""
        update = Update(self._zone)
        # Messages hold all requirements before the first change.
        for item in part:
            ownership.guard(update, item.change, self._claims.get(id(item)), self._zone)
        for item in part:
            ownership.write(update, item.change, self._zone)
        try:
            [rcode] = await self._connection.update([update.octets()])
        except Malformed as error:
            return Failure(Malformed, str(error))
        self._counters.messages += 1
        self._counters.last_rtt = self._connection.last_rtt
        if rcode == Rcode.NOERROR:
            self._counters.rrsets += len(part)
            await self.prove(part)
            return None
        failure = classify.update_failure(rcode, self._connection.server, self._zone)
        if failure.scope is Scope.ZONE:
            raise ZoneFailed(failure)
        if rcode not in _PREREQUISITES and not self._probed:
            # Find out whether the server refuses these records, or all.
            await probe(self._connection, self._zone)
            self._probed = True
        return failure

    async def _retry_refused(self, item: Item, failure: Failure) -> bool:
        """Settle a change that was refused alone, or return True if another claim may succeed."""
        claim, prerequisite = self._claims.get(id(item)), failure.kind is Conflict
        match item.change, claim:
            case Replace(), Unclaimed() if prerequisite:
                self._claims[id(item)] = Adoptable()
                return True
            case Replace(), Adoptable() | Held() if prerequisite:
                # The mark may have changed meanwhile, most likely for another object of the same owner.
                await self._read_owners([item])
            case Delete(), _ if prerequisite:
                item.succeed()  # it is gone, belongs to another owner, or was written for another object
        if item.settled:
            return False
        match claim, self._claims.get(id(item)):
            case Adoptable(), Unclaimed():
                text = (
                    f"{_named(item)} exists already and bears no owner's mark: delete it, "
                    "or give it the values wanted so that it is adopted"
                )
                item.fail(Failure(Refused, text, PERSON_SOON))
            case before, now if now == before:
                item.fail(replace(failure, text=f"{_named(item)}: {failure.text}"))
            case _:
                return True
        return False

    async def prove(self, part: Sequence[Item]) -> None:
        """Settle changes that the server has accepted: it ignores some silently, so read them back."""
        written = [(item, item.change.wanted) for item in part if isinstance(item.change, Replace)]
        removed = [item for item in part if isinstance(item.change, Delete)]
        replies = await read_back(self._connection, [wanted for _, wanted in written])
        for (item, record), reply in zip(written, replies, strict=True):
            if reply is None:
                item.succeed()
                continue
            wanted = messages.rrset(record)
            queries = [messages.query(wanted.name, number) for number in (RdataType.SOA, RdataType.ANY)]
            soa, everything = await self._connection.exchange(queries)
            item.fail(classify.diagnosis(wanted, self._zone, reply, soa, everything))
        if not removed:
            return
        rcodes = await self._connection.update([self._absence(removed)]) * len(removed)
        if rcodes[0]:
            rcodes = await self._connection.update([self._absence([item]) for item in removed])
        for item, rcode in zip(removed, rcodes, strict=True):
            if rcode == Rcode.NOERROR:
                item.succeed()
            else:
                text = f"{_named(item)} was written again by another program right after it was deleted"
                item.fail(Failure(Conflict, text))

    def _absence(self, removed: Sequence[Item]) -> bytes:
        # A wildcard could answer a query; a prerequisite sees what the zone really holds.
        update = Update(self._zone)
        for item in removed:
            update.absent(item.key.name, RdataType[item.key.type])
        return update.octets()


def _named(item: Item) -> str:
    return f"{item.key.name} {item.key.type}"
