"""Opens the connection to the NATS server, and logs its loss and return."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from typing import Protocol

import nats.errors
from nats.aio.client import Client

from bus import subjects
from bus.transport.access import Insecure
from windowbox.errors import Refused, Unreachable
from windowbox.settings.bussettings import Access

logger = logging.getLogger(__name__)

_VIOLATION = re.compile(r'permissions violation for (\w+) to "([^"]+)"', re.IGNORECASE)
_UNKNOWN = "authorization violation"
_CLOSED = "APPLICATION_DATA_AFTER_CLOSE_NOTIFY"
"""We have ended the connection, and the server was still speaking: nobody distrusts anybody."""
_FORBIDDEN = (
    "the bus at %s forbids user %r to %s to %s: use the user made for this role, "
    "or bring the rights in the server's configuration up to date"
)


class Connection(Protocol):
    """What is told of its fate."""

    @property
    def client(self) -> Client: ...

    closing: bool

    @property
    def dead(self) -> str: ...
    def reconnected(self) -> None: ...
    def disconnected(self) -> None: ...
    async def close(self) -> None: ...


class _Fate:
    """What becomes of a connection, told to the log and to those whom it concerns."""

    def __init__(self, bus: Connection, access: Access) -> None:
        self._bus = bus
        self._access = access
        self.entered = False
        self.last_error: Exception | None = None
        self._told = ""

    async def reconnected(self) -> None:
        self._told = ""
        logger.info("the bus is back at %s", self._access.url)
        self._bus.reconnected()

    async def disconnected(self) -> None:
        if not self.entered:
            return
        if self._bus.client.is_closed:
            if not self._bus.closing:
                logger.error("the bus at %s has ended the connection: %s", self._access.url, self._bus.dead)
        else:
            logger.warning("lost the bus at %s; connecting again", self._access.url)
        self._bus.disconnected()

    async def failed(self, error: Exception) -> None:
        first, self.last_error = self.last_error is None, error
        text = str(error)
        if violation := _VIOLATION.search(text):
            # The request itself is never answered, and ends as one that took too long.
            act = "subscribe" if violation[1].lower() == "subscription" else "publish"
            logger.error(_FORBIDDEN, self._access.url, self._access.user, act, violation[2])
        elif not self.entered and _UNKNOWN in text.lower():
            # Raised from here it ends nats-py's connecting, which would otherwise go on for ever.
            check = "nats.creds" if self._access.creds else "its password"
            raise Refused(
                f"the bus at {self._access.url} refuses user {self._access.user!r}: check {check}"
            ) from error
        elif why := _untrusted(error):
            self._distrusted(why, error)
        elif first and not self.entered:
            logger.info("the bus at %s cannot be reached yet: %s", self._access.url, text)
        else:
            logger.debug("bus: %s", error)

    def _distrusted(self, why: str, error: Exception) -> None:
        text = f"the bus at {self._access.url} {why}"
        # One of several servers may be the only one that is wrong.
        if not self.entered and len(self._access.servers) == 1:
            raise Refused(text) from error
        if text != self._told:
            logger.error(text)
        self._told = text


def _untrusted(error: Exception) -> str:
    """What to do if one side does not trust the other; empty if that is not what is wrong."""
    match error:
        case Insecure():
            return str(error)
        case ssl.SSLCertVerificationError():
            return (
                f"shows a certificate that is refused here ({error.verify_message}): correct nats.ca, "
                "or give the server one that is valid for its name in nats.url"
            )
        case ssl.SSLError() if error.reason != _CLOSED:
            return f"refuses TLS with us ({error.reason}): give it what it trusts by nats.cert and nats.key"
    return ""


async def connect(bus: Connection, access: Access, patience: float) -> None:
    """Connect; whatever happens to the connection later is told as well."""
    fate = _Fate(bus, access)
    try:
        async with asyncio.timeout(patience):
            await bus.client.connect(
                servers=access.servers,
                user=None if access.creds else access.user,
                password=access.password,
                user_jwt_cb=access.jwt if access.creds else None,
                signature_cb=access.sign if access.creds else None,
                name=access.name,
                inbox_prefix=subjects.inbox(access.user),
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.2,  # type: ignore[arg-type]  # seconds, and a fraction will do
                connect_timeout=2,
                ping_interval=10,
                max_outstanding_pings=2,
                reconnected_cb=fate.reconnected,
                disconnected_cb=fate.disconnected,
                error_cb=fate.failed,
                flush_timeout=2,
                skip_subject_validation=True,  # they are spelled in one place, and escaped there
            )
        fate.entered = True
    except (TimeoutError, nats.errors.Error, OSError) as error:
        why = fate.last_error or error
        if text := _untrusted(why):
            raise Refused(f"the bus at {access.url} {text}") from error
        raise Unreachable(
            f"the bus at {access.url} cannot be reached: {str(why) or type(why).__name__}; "
            "start it, or correct nats.url"
        ) from error
    finally:
        if not fate.entered:
            await bus.close()
