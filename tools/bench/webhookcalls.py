"""What webhooks cost an API server, as it tells itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox.servers.apiserver import ApiServer

_SERIES = re.compile(
    r"^apiserver_admission_webhook_admission_duration_seconds_(bucket|sum|count)\{([^}]*)\} (\S+)$", re.M
)
_SHORT = 'le="0.005"'


@dataclass(frozen=True)
class Calls:
    """Calls of webhooks since the API server began."""

    count: float = 0.0
    seconds: float = 0.0
    short: float = 0.0
    """How many took no more than 5 ms."""

    def since(self, former: Calls) -> Calls:
        return Calls(self.count - former.count, self.seconds - former.seconds, self.short - former.short)

    @property
    def average_ms(self) -> float:
        return 1000 * self.seconds / self.count if self.count else 0.0

    @property
    def short_percent(self) -> float:
        return 100 * self.short / self.count if self.count else 0.0


def of(api: ApiServer) -> Calls:
    return parsed(api.request("GET", "/metrics").read().decode())


def parsed(metrics: str) -> Calls:
    """From the text of the API server's metrics."""
    sums = {"bucket": 0.0, "sum": 0.0, "count": 0.0}
    for part, labels, value in _SERIES.findall(metrics):
        if part != "bucket" or _SHORT in labels:
            sums[part] += float(value)
    return Calls(sums["count"], sums["sum"], sums["bucket"])
