"""Queries in octets, without a signature, and replies that hold exactly what was written.

dnspython takes 0.3 ms to write such a query and to read its reply. That a reply is as wanted can be seen in
its octets; whatever else they hold is left to dnspython.
"""

from __future__ import annotations

import struct

from dns.rdataclass import IN
from dns.rdatatype import RdataType

from windowbox.clients.nameserver import messages
from windowbox.models.recordsets import RecordSet

_COUNTS = struct.Struct("!HHH")
"""Flags, and the numbers of questions and of answers."""
_HEADER = struct.pack("!HHHHHH", 0, 0, 1, 0, 0, 0)
_FLAGS, _AUTHORITATIVE = 0xFE0F, 0x8400
"""A whole reply to a query, from an authoritative server, without an error: QR, OPCODE, AA, TC and RCODE."""


class PlainQuery:
    """A query for one record set, and what the reply must hold to prove it."""

    __slots__ = ("_fixed", "_question", "_values")

    def __init__(self, wanted: RecordSet) -> None:
        number = RdataType[wanted.key.type]
        self._question = (messages.name(wanted.key.name).to_wire() or b"") + struct.pack("!HH", number, IN)
        # Servers write the name of each answer as a pointer to the question's.
        self._fixed = b"\xc0\x0c" + struct.pack("!HHI", number, IN, wanted.ttl)
        self._values = {len(value).to_bytes(2, "big") + value for value in messages.values(wanted)}

    @property
    def octets(self) -> bytes:
        """The query, with 0 as its id."""
        return _HEADER + self._question

    def proved_by(self, reply: bytes) -> bool:
        """Whether the answers in the reply are exactly the wanted ones, in any order.

        False is no proof of the contrary: names in the answers may be compressed, or written in capitals.
        """
        place = 12 + len(self._question)
        if reply[12:place] != self._question:
            return False
        flags, questions, answers = _COUNTS.unpack_from(reply, 2)
        if flags & _FLAGS != _AUTHORITATIVE or questions != 1 or answers != len(self._values):
            return False
        missing = set(self._values)
        while missing:
            end = place + 12 + int.from_bytes(reply[place + 10 : place + 12], "big")
            value = reply[place + 10 : end]
            if reply[place : place + 10] != self._fixed or value not in missing:
                return False
            missing.remove(value)
            place = end
        return True
