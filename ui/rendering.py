"""HTML from templates. Whatever comes from objects, people or other processes is text."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ui import veiling
from ui.spans import span
from ui.view import Params, View
from ui.views import balancer, shoot, story
from windowbox.models.refs import ObjectRef

STATIC = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "vendor/htmx.min.js": "text/javascript",
    "vendor/hx-sse.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_LONGEST = 2000
_TEXT = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Categories of characters that are invisible, or turn the direction of text: they are shown by number."""


@cache
def static(name: str) -> tuple[bytes, str]:
    """A file that is served as it is, and the digest in its address."""
    content = files("ui").joinpath("static", *name.split("/")).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:16]


def visible(value: object) -> object:
    """A value as it is written into HTML: no text hides, shows as another one, or tells a secret."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return "" if value is None else value
    value = veiling.text(value)
    text = value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\t":
        return character
    return f"\\u{ord(character):04x}" if unicodedata.category(character) in _TEXT else character


def url_of(view: View, params: Params) -> str:
    """The address of a view. Each part of it is one segment, whatever it holds."""
    segments = [view.name, *(params[name] for name in view.path)]
    query = {name: params[name] for name in view.query if params.get(name)}
    return (
        "/"
        + "/".join(quote(one, safe="", errors="replace") for one in segments)
        + (f"?{urlencode(query, errors='replace')}" if query else "")
    )


def story_url(ref: ObjectRef) -> str:
    return url_of(story.VIEW, dict(zip(story.VIEW.path, story.path(ref), strict=True)))


def balancer_url(ref: ObjectRef) -> str:
    return url_of(balancer.VIEW, {"cluster": ref.cluster, "namespace": ref.namespace, "name": ref.name})


def shoot_url(namespace: str) -> str:
    return url_of(shoot.VIEW, {"namespace": namespace})


def ago(at: float | datetime, now: float | None = None) -> Markup:
    """A time as a person says it; the script of the page keeps it true. The exact one is its title."""
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(min(max(at, 0.0), 4e9), UTC)
    moment = moment.astimezone(UTC)
    exact = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    title = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, title, f"{moment:%H:%M:%S}")


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def spark(counts: Sequence[int], words: str) -> Markup:
    """A sparkline. It is a picture for those who see, and a sentence for others."""
    top = max([*counts, 1])
    width, height = 120, 24
    step = width / max(len(counts) - 1, 1)
    points = [(index * step, height - 1 - (height - 3) * count / top) for index, count in enumerate(counts)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">'
        '<polygon points="0,{1} {3} {0},{1}"/><polyline points="{3}"/></svg>'
    ).format(width, height, words, line)


def environment(now: Callable[[], float]) -> Environment:
    made = Environment(
        loader=PackageLoader("ui", "templates"), autoescape=True, undefined=StrictUndefined,
        finalize=visible, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {"ago": ago, "span": span, "size": size, "thousands": lambda count: f"{count:,}"}
    made.globals |= {
        "story_url": story_url, "balancer_url": balancer_url, "shoot_url": shoot_url,
        "url_of": url_of, "spark": spark, "now": now,
        "static": lambda name: f"/static/{static(name)[1]}/{name}",
    }  # fmt: skip
    return made


class Renderer:
    """Renders views and pages."""

    def __init__(self, views: Iterable[View], now: Callable[[], float]) -> None:
        self._environment = environment(now)
        self._views = [view for view in views if view.listed]

    def view(self, view: View, params: Params, variables: dict[str, object]) -> str:
        """A view without the page around it, which is what updates replace."""
        return self._text(f"{view.name}.html", {**variables, "view": view, "params": params})

    def page(self, template: str, **variables: Any) -> str:
        return self._text(template, {"views": self._views, "view": None, **variables})

    def _text(self, template: str, variables: dict[str, Any]) -> str:
        # Half of a character's pair in UTF-16, as JSON may hold it, cannot be encoded.
        text = self._environment.get_template(template).render(variables)
        return text.encode(errors="backslashreplace").decode()
