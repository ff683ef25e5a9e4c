"""The pool `dnsrecord`, put together."""

from __future__ import annotations

from dataclasses import dataclass

from bus.queue import Queue
from windowbox.clients.nameserver import Nameserver
from windowbox.models.dnssettings import DnsSettings
from workers.dnsrecord.actuator import KIND, DNSRecordActuator
from workers.dnsrecord.claims import Claims
from workers.dnsrecord.drift import DriftCheck
from workers.serving import Common, Serving, scope


@dataclass(frozen=True)
class Served:
    """DNSRecords, and who looks after them while nobody touches them."""

    serving: Serving
    drift: DriftCheck


def served(common: Common, nameserver: Nameserver, dns: DnsSettings) -> Served:
    claims = Claims(common.bus, scope(common, KIND), [zone.name for zone in dns.zones])
    drift = DriftCheck(nameserver, claims, Queue(common.bus, KIND.pool), dns.drift_interval)
    actuator = DNSRecordActuator(nameserver, dns, claims)
    # Changes that come together travel to the name server together: the more, the better.
    return Served(Serving(KIND, actuator, tasks={"claims": claims.run}, at_once=None), drift)
