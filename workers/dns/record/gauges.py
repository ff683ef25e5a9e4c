"""Metrics of the connections to name servers."""

from __future__ import annotations

from prometheus_client import Counter

from windowbox.clients.nameserver import Nameserver
from windowbox.telemetry import metrics


class NameserverGauges:
    """Copies what the connections have counted into the metrics."""

    def __init__(self, nameserver: Nameserver) -> None:
        self._nameserver = nameserver
        self._counted: dict[tuple[Counter, str], int] = {}

    async def update(self) -> None:
        for zone in self._nameserver.stats():
            for counter, counted in (
                (metrics.dns_messages, zone.messages),
                (metrics.dns_rrsets, zone.rrsets),
                (metrics.dns_reconnections, zone.reconnections),
            ):
                before = self._counted.get((counter, zone.zone), 0)
                # A connection that was closed meanwhile counts from zero again.
                counter.labels(zone.zone).inc(counted - before if counted >= before else counted)
                self._counted[counter, zone.zone] = counted
            metrics.dns_waiting.labels(zone.zone).set(zone.waiting)
            metrics.dns_connected.labels(zone.zone).set(zone.connected)
            metrics.dns_breaker.labels(zone.zone).set(zone.breaker_open)
