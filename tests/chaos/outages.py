"""When something was away."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Outages:
    """Spans of time, the last of which may not be over yet."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    def begin(self) -> None:
        """From now on it is away, if it was not already."""
        if not self._open():
            self.spans.append((time.monotonic(), float("inf")))

    def end(self) -> None:
        """It is back."""
        if self._open():
            self.spans[-1] = (self.spans[-1][0], time.monotonic())

    def touch(self, began: float, ended: float, margin: float) -> bool:
        """Whether it was away at some time between these two, or shortly before."""
        return any(began <= back + margin and away <= ended for away, back in self.spans)

    def seconds(self) -> list[float]:
        """How long each lasted, of those that are over."""
        return [round(back - away, 2) for away, back in self.spans if back != float("inf")]

    def _open(self) -> bool:
        return bool(self.spans) and self.spans[-1][1] == float("inf")
