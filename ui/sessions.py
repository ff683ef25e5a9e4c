"""Sessions: who has signed in, and links that sign in once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

COOKIE = "windowbox-session"

HOURS = 8
_SECONDS = HOURS * 3600.0
_MOST = 1000
"""Sessions at once; the one that ends first makes room."""
_AGAIN = 60.0
"""Seconds after which the cluster is asked again whether somebody may look."""
LINK_SECONDS = 3600.0


@dataclass(eq=False)
class Session:
    """Somebody who has signed in."""

    user: str
    ends: float
    still: Callable[[], Awaitable[bool]] | None = None
    """Asks whether they still may; None for those who came by a link."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    asked: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Sessions:
    """The sessions of this process, by the digest of their cookies."""

    def __init__(self) -> None:
        self._found: dict[str, Session] = {}

    def begin(self, user: str, still: Callable[[], Awaitable[bool]] | None = None) -> tuple[str, Session]:
        """A new session, and its cookie."""
        now = time.monotonic()
        self._found = {name: one for name, one in self._found.items() if one.ends > now}
        if len(self._found) >= _MOST:
            del self._found[min(self._found, key=lambda name: self._found[name].ends)]
        cookie = secrets.token_urlsafe(32)
        made = self._found[_digest(cookie)] = Session(user, now + _SECONDS, still, asked=now)
        return cookie, made

    async def find(self, cookie: str) -> Session | None:
        """The session of a cookie, if it has not ended and its user still may look."""
        found = self._found.get(_digest(cookie))
        if found is None:
            return None
        if time.monotonic() >= found.ends:
            self.end(cookie)
            return None
        if found.still is None:
            return found
        async with found.asking:
            if time.monotonic() - found.asked > _AGAIN:
                if not await found.still():
                    self.end(cookie)
                    return None
                found.asked = time.monotonic()
        return found

    def end(self, cookie: str) -> None:
        self._found.pop(_digest(cookie), None)


class Links:
    """Links that sign in whoever opens them first. Their key is known to this process and its owner."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._used: dict[str, float] = {}

    def take(self, link: str, now: float) -> bool:
        """Whether the link is good. It is not good again."""
        until, _, rest = link.partition(".")
        if not until.isdecimal() or len(link) > _LONGEST or not now < int(until) <= now + LINK_SECONDS + 1:
            return False
        nonce, _, mark = rest.partition(".")
        if not hmac.compare_digest(mark, _mark(self._key, f"{until}.{nonce}")):
            return False
        self._used = {used: end for used, end in self._used.items() if end > now}
        if nonce in self._used:
            return False
        self._used[nonce] = int(until)
        return True


_LONGEST = 200


def link(key: str, now: float) -> str:
    """A new link: its end, a number used once, and the mark of the key."""
    said = f"{int(now + LINK_SECONDS)}.{secrets.token_urlsafe(12)}"
    return f"{said}.{_mark(key, said)}"


def _mark(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()
