"""TLS sessions of one API server: a later connection resumes the session of an earlier one.

Its handshake needs no certificates and signatures, and takes a quarter of the CPU.
"""

from __future__ import annotations

import contextlib
import ssl
import weakref

Hostname = str | bytes | None


class _Connection(ssl.SSLObject):
    """A connection that its context knows once the handshake is complete."""

    def do_handshake(self) -> None:
        super().do_handshake()  # raises an error as long as the server has to answer
        if isinstance(self.context, ResumingContext):
            self.context.newest[self.server_hostname] = weakref.ref(self)


class ResumingContext(ssl.SSLContext):
    """The context of the connections to one server: it remembers the newest session of each server name.

    A session exists only after this very context has verified the server's certificate. A server that does
    not know it any more asks for a full handshake.
    """

    sslobject_class = _Connection
    newest: dict[Hostname, weakref.ref[_Connection]]
    """The newest connections."""
    _sessions: dict[Hostname, ssl.SSLSession]

    @classmethod
    def of(cls, context: ssl.SSLContext) -> ResumingContext:
        """This context, from now on one that resumes sessions."""
        context.__class__ = cls  # so it has the defaults of `create_default_context`
        assert isinstance(context, cls)
        context.newest, context._sessions = {}, {}
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: Hostname = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        newest = self.newest.get(server_hostname)
        if former := newest and newest():
            # OpenSSL cannot copy every session. A server sends tickets of one after the handshake.
            with contextlib.suppress(ValueError):
                if (known := former.session) and known.has_ticket:
                    self._sessions[server_hostname] = known
        session = session or self._sessions.get(server_hostname)
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
