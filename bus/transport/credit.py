"""Credit: how many messages one who takes them has room for, and how many of those are asked for."""

from __future__ import annotations


class Credit:
    """Room for `limit` messages at once. Those in hand, those asked for, and the rest, which is free.

    With `preferred`, only so many of them, less those in hand, are asked for at our rank. What goes beyond is
    asked for late, after all others: nobody who has enough to do is preferred.
    """

    def __init__(self, limit: int, preferred: int | None = None) -> None:
        self._limit = limit
        self._preferred = limit if preferred is None else min(preferred, limit)
        self._split = preferred is not None
        self._in_hand = 0
        self.early = 0
        """Asked for at our rank."""
        self.late = 0
        """Asked for after all others."""

    @property
    def asked(self) -> int:
        return self.early + self.late

    def begin(self) -> None:
        """Nothing is asked for any more; what is in hand stays."""
        self.early = self.late = 0

    def wanted(self) -> tuple[int, int]:
        """What to ask for now, early and late. Only when a good part is used up, lest requests be many."""
        room = self._limit - self._in_hand - self.asked
        if room <= 0:
            return 0, 0
        early = min(room, self._preferred - self._in_hand - self.early)
        if early < (max(1, self._preferred // 4) if self._split else self._enough()):
            early = 0
        late = room - early if self._split else 0
        if late < self._enough():
            late = 0
        return early, late

    def _enough(self) -> int:
        return max(1, (self._limit - self._in_hand) // 2) if self.asked else 1

    def ask(self, early: int, late: int) -> None:
        self.early += early
        self.late += late

    def receive(self, kept: int, dropped: int) -> None:
        """What is asked for early comes first."""
        early = min(self.early, kept + dropped)
        self.early -= early
        self.late = max(0, self.late - (kept + dropped - early))
        self._in_hand += kept

    def refuse(self, late: bool, count: int) -> None:
        """So many of a request will not come any more."""
        if late:
            self.late, self.early = _less(self.late, self.early, count)
        else:
            self.early, self.late = _less(self.early, self.late, count)

    def done(self, count: int) -> None:
        self._in_hand -= count


def _less(kind: int, other: int, count: int) -> tuple[int, int]:
    """Both less `count` of the first kind; what it does not hold is taken from the other.

    A late request may have brought what is booked as early, while the early one was on its way.
    """
    over = max(0, count - kind)
    return kind - (count - over), max(0, other - over)
