"""The HTTP server of the page."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import unquote

from aiohttp import web
from markupsafe import Markup

from ui import guarding, limits, live, rendering, sessions, signin
from ui.guarding import Guard
from ui.limits import Limits
from ui.live import Hub, Place
from ui.rendering import STATIC, Renderer
from ui.sessions import COOKIE, Links, Session, Sessions
from ui.view import Params, View
from ui.views.table import BY_NAME, VIEWS
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Malformed, Missing, TransientError, WindowboxError
from windowbox.settings.uisettings import UiSettings
from windowbox.telemetry import http

_LONGEST_BODY = 256 << 10
"""Bytes of a form: kubeconfigs with many contexts are large."""
_BEAT = 15.0
"""Seconds after which a quiet stream says that it lives."""
_WRITING = 10.0
"""Seconds for which a viewer may leave an update unread; then it is cut off, and connects again."""
_LONGEST_STREAM = 3600.0
_BUFFER = 256 << 10
_SESSION = web.RequestKey("session", Session)


class Server:
    """Serves the page to those who have signed in."""

    def __init__(self, settings: UiSettings, kube: Callable[[], Awaitable[Kube]]) -> None:
        self._settings = settings
        self._kube = kube
        self._limits = Limits()
        self._sessions = Sessions()
        self._links = Links(settings.link_key.get_secret_value()) if settings.link_key else None
        self._renderer = Renderer(VIEWS, time.time)
        self.hub = Hub(self._renderer.view)
        guard = Guard(settings.hosts, self._limits)
        self._application = web.Application(
            middlewares=[guard.headers, self._errors], client_max_size=_LONGEST_BODY
        )
        self._application.add_routes(
            [
                web.get("/static/{digest}/{name:.+}", self._static),
                web.get("/sign-in", self._sign_in_form),
                web.post("/sign-in", self._sign_in),
                web.get("/enter", self._enter),
                web.post("/sign-out", self._known(self._sign_out)),
                web.get("/live/{rest:.+}", self._known(self._stream)),
                web.get("/", self._known(self._start)),
                web.get("/{rest:.+}", self._known(self._page)),
            ]
        )

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listen at `ui.address`; gives the bound address."""
        host, _, port = self._settings.address.rpartition(":")
        if not host or not port.isdecimal():
            raise Malformed(f"setting ui.address {self._settings.address!r} is not host:port")
        logging.getLogger("aiohttp.server").addFilter(http.is_our_error)
        runner = web.AppRunner(
            self._application, access_log=None, auto_decompress=False, handler_cancellation=True,
            shutdown_timeout=1.0, keepalive_timeout=30.0, max_line_size=8190, max_field_size=16 << 10,
        )  # fmt: skip
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host.strip("[]"), int(port)).start()
            except OSError as error:
                raise Malformed(
                    f"setting ui.address: cannot listen on {self._settings.address}: {error}; "
                    "choose a free port, or 0 for any"
                ) from error
            yield f"{host}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    def _known(self, handle: guarding.Handler) -> guarding.Handler:
        """Only for those who have signed in; others are led to where they can."""

        async def handled(request: web.Request) -> web.StreamResponse:
            session = await self._sessions.find(request.cookies.get(COOKIE, ""))
            if session is None:
                if request.path.startswith("/live/"):
                    return web.Response(status=401, text="Sign in again: reload the page.\n")
                raise web.HTTPSeeOther("/sign-in")
            request[_SESSION] = session
            if request.method == "POST":
                form = await request.post()
                if form.get("csrf") != session.csrf:
                    return web.Response(status=403, text="The form is too old: reload the page.\n")
            return await handle(request)

        return handled

    @web.middleware
    async def _errors(self, request: web.Request, handler: guarding.Handler) -> web.StreamResponse:
        """Expected errors as pages."""
        try:
            return await handler(request)
        except Missing as error:
            return self._trouble(request, 404, "Not found", str(error))
        except (TransientError, TimeoutError) as error:
            why = str(error) or "the bus did not answer in time"
            response = self._trouble(request, 503, "Not now", why)
            response.headers["Retry-After"] = "2"
            return response
        except WindowboxError as error:
            return self._trouble(request, 400, "Not possible", str(error))
        except web.HTTPNotFound:
            return self._trouble(request, 404, "Not found", "There is no such page.")

    def _trouble(self, request: web.Request, status: int, title: str, why: str) -> web.Response:
        session = request.get(_SESSION)
        text = self._renderer.page("trouble.html", title=title, why=why, session=session)
        return web.Response(status=status, text=text, content_type="text/html")

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in STATIC:
            raise Missing("there is no such file")
        content, digest = rendering.static(name)
        # Its address changes with it.
        kept = "public, max-age=31536000, immutable" if request.match_info["digest"] == digest else "no-store"
        return web.Response(
            body=content, content_type=STATIC[name], charset="utf-8", headers={"Cache-Control": kept}
        )

    async def _sign_in_form(self, request: web.Request) -> web.Response:
        return self._form(200, "")

    def _form(self, status: int, why: str) -> web.Response:
        text = self._renderer.page(
            "signin.html", title="Sign in", why=why, session=None, links=self._links is not None
        )
        return web.Response(status=status, text=text, content_type="text/html")

    async def _sign_in(self, request: web.Request) -> web.Response:
        self._limits.signing_in.take(limits.client_of(request.remote))
        form = await request.post()
        text = form.get("token")
        try:
            user, still = await signin.signed_in(await self._kube(), text if isinstance(text, str) else "")
        except TransientError:
            raise
        except WindowboxError as error:
            return self._form(403, str(error))
        cookie, _ = self._sessions.begin(user.name, still)
        return self._entered(request, cookie)

    async def _enter(self, request: web.Request) -> web.Response:
        self._limits.signing_in.take(limits.client_of(request.remote))
        if not self._links or not self._links.take(request.query.get("link", ""), time.time()):
            return self._form(403, "This link is too old, or was used before: make another one.")
        cookie, _ = self._sessions.begin("the owner of this sandbox")
        return self._entered(request, cookie)

    def _entered(self, request: web.Request, cookie: str) -> web.Response:
        """A page that leads on by itself: after a redirect from elsewhere, no browser shows the cookie."""
        response = web.Response(
            text=self._renderer.page("entered.html", title="Signed in", session=None),
            content_type="text/html",
        )
        response.set_cookie(
            COOKIE, cookie, httponly=True, samesite="Strict", path="/", max_age=sessions.HOURS * 3600,
            # Browsers take no secure cookie from loopback without TLS.
            secure=not guarding.is_loopback(guarding.name_of(request.host)),
        )  # fmt: skip
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = web.HTTPSeeOther("/sign-in")
        response.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        raise response

    async def _start(self, request: web.Request) -> web.Response:
        return await self._shown(request, VIEWS[0], {})

    async def _page(self, request: web.Request) -> web.Response:
        return await self._shown(request, *_place(request))

    async def _shown(self, request: web.Request, view: View, params: Params) -> web.Response:
        found = await self.hub.rendered(Place.of(view, params))
        text = self._renderer.page(
            "page.html", title=_title(view, params), view=view, params=params,
            content=Markup(found.html), digest=found.digest, session=request[_SESSION],
        )  # fmt: skip
        return web.Response(text=text, content_type="text/html")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Updates of a view as they come. The first one comes at once, unless the page has it already."""
        view, params = _place(request)
        with self._limits.stream(limits.client_of(request.remote)):
            async with self.hub.looking(Place.of(view, params)) as viewer:
                response = web.StreamResponse(
                    headers={
                        **guarding.HEADERS,
                        "Content-Type": "text/event-stream",
                        "Cache-Control": "no-store",
                    }
                )
                await response.prepare(request)
                if request.transport:
                    request.transport.set_write_buffer_limits(_BUFFER)
                await self._updates(request, viewer, response)
                return response

    async def _updates(self, request: web.Request, viewer: live.Viewer, response: web.StreamResponse) -> None:
        seen = request.headers.get("Last-Event-ID") or request.query.get("seen", "")
        ends = time.monotonic() + _LONGEST_STREAM
        while time.monotonic() < ends:
            update = viewer.newest
            viewer.news.clear()
            data = b"".join(live.events(update)) if update.digest != seen else b": here\n\n"
            try:
                async with asyncio.timeout(_WRITING):
                    await response.write(data)
            except TimeoutError:
                # It reads too slowly. Cut off, it connects again, and gets what is new then.
                if request.transport:
                    request.transport.abort()
                return
            seen = update.digest
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BEAT):
                    await viewer.news.wait()
            if await self._sessions.find(request.cookies.get(COOKIE, "")) is None:
                return  # it has signed out, or may not look any more


def _place(request: web.Request) -> tuple[View, dict[str, str]]:
    """The view in a path, and its parameters. Missing if there is none."""
    # Slashes in a segment are encoded, so the raw path is taken apart before it is decoded.
    segments = request.raw_path.partition("?")[0].strip("/").split("/")
    name, *rest = segments[1:] if segments[0] == "live" else segments
    view = BY_NAME.get(name)
    if view is None or len(rest) != len(view.path):
        raise Missing("there is no such page")
    params = {key: unquote(text) for key, text in zip(view.path, rest, strict=True)}
    return view, params | {key: request.query[key] for key in view.query if request.query.get(key)}


def _title(view: View, params: Params) -> str:
    return params.get("name", view.title)
