"""The adapter for name servers: record sets come in; signed updates, queries and zone transfers go out."""

from windowbox.clients.nameserver.nameserver import Nameserver
from windowbox.clients.nameserver.ownership import Mark
from windowbox.clients.nameserver.resolver import ask_resolver
from windowbox.clients.nameserver.tsig import TsigKey
from windowbox.clients.nameserver.zonequeue import ZoneStats

__all__ = ["Mark", "Nameserver", "TsigKey", "ZoneStats", "ask_resolver"]
