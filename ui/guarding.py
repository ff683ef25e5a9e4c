"""What each request has to pass, and what each answer bears."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from ui import limits
from ui.limits import Crowded, Limits

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEADERS = {
    # Nothing but files of our own, no script in a page, no other site around it.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Addresses name objects. With `no-referrer`, forms of our own would not say where they come from.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_LONGEST_PATH = 4096


class Guard:
    """Refuses requests for other hosts, from other sites, and too many of one client."""

    def __init__(self, hosts: Collection[str], limits: Limits) -> None:
        self._hosts = {host.lower() for host in hosts}
        self._limits = limits

    @web.middleware
    async def headers(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The outermost one: all answers have the headers, those that refuse as well."""
        try:
            response = await self._checked(request, handler)
        except Crowded as crowded:
            text = "Too many requests: try again in a moment.\n"
            response = web.Response(status=429, text=text, headers={"Retry-After": str(crowded.after)})
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        except ConnectionError:
            raise
        except Exception:  # a bug of ours: the client learns nothing of it
            logger.exception("a request for the page failed")
            response = web.Response(status=500, text="This is a bug of windowbox. Its log says more.\n")
        if not response.prepared:
            response.headers.update(HEADERS)
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._limits.requests.take(limits.client_of(request.remote))
        if not self.is_ours(request.host):
            # Another site may let its name lead to our address, and would read what we answer.
            text = "This page is not served by that name. Add it to the setting ui.hosts, if it is yours.\n"
            return web.Response(status=421, text=text)
        if len(request.raw_path) > _LONGEST_PATH:
            return web.Response(status=414, text="The address is too long.\n")
        if request.method not in ("GET", "HEAD") and not self._is_same_site(request):
            return web.Response(status=403, text="The request comes from another site.\n")
        return await handler(request)

    def is_ours(self, host: str) -> bool:
        """Whether the page is served by this name, which may have a port."""
        name = name_of(host)
        return is_loopback(name) or name in self._hosts

    def _is_same_site(self, request: web.Request) -> bool:
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = request.headers.get("Origin")
        return origin is None or urlsplit(origin).netloc.lower() == request.host.lower()


def name_of(host: str) -> str:
    """The name in a Host header, in lower case, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
