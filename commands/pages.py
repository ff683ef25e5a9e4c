"""Writes docs/settings.md from the settings, and the tables of docs/kinds.md and docs/clouds.md.

`python -m commands.pages` writes all of them.
"""

from __future__ import annotations

import textwrap
import types
import typing
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from clouds import table
from windowbox.kinds import KINDS, UNSERVED
from windowbox.settings.settings import Settings

DOCS = Path(__file__).parents[1] / "docs"
SETTINGS_PAGE, KINDS_PAGE, CLOUDS_PAGE = DOCS / "settings.md", DOCS / "kinds.md", DOCS / "clouds.md"

_HEAD = """# Settings

Which settings are there, and what are their defaults? For operators; `make generate` writes this page.

Every process reads a YAML file (`--settings FILE`), then the environment, then flags; later values win.
The setting `nats.url` is `nats: {url: …}` in the file and `WINDOWBOX_NATS__URL` in the environment, where
lists and mappings are JSON. An unknown setting in a file is an error.

| setting | default | meaning |
|---|---|---|
"""

_EXAMPLE = """
## An example

The sandbox writes this for a worker:

```yaml
nats: {url: "nats://127.0.0.1:4222", user: worker, password: "…"}
cluster: {kubeconfig: /etc/windowbox/kubeconfig}
metrics: 127.0.0.1:9102
dns:
  zones:
  - name: local.gardener.cloud
    servers: ["127.0.0.1:53"]
    key: {name: windowbox, algorithm: hmac-sha256, secret: "…"}
```
"""

_WIDTH = 150
"""Of a line of prose."""
_LONGEST = 120
"""Characters of a default that still fits into a cell of the table."""

_BEGIN, _END = "<!-- {}: written by `make generate` -->", "<!-- end of {} -->"


def settings_page() -> str:
    """The whole of docs/settings.md."""
    long: list[str] = []
    rows = "\n".join(_rows(Settings, "", None, long))
    defaults = "\n## Long defaults\n\n" + "\n".join(long) if long else ""
    return _HEAD + rows + "\n" + defaults + _EXAMPLE


def _rows(
    model: type[BaseModel], prefix: str, section_default: BaseModel | None, long: list[str]
) -> Iterator[str]:
    """Rows of the table for one section. Defaults that are too long for a cell are added to `long`."""
    for name, field in model.model_fields.items():
        inner, many = _section(field.annotation)
        place = f"{prefix}{name}" + ("[]" if many else "")
        about = field.description or ""
        if inner and not about:
            about = (inner.__doc__ or "").split("\n")[0]
        if not inner or many or field.description:
            yield f"| `{place}` | {_default(field, name, section_default, place, long)} | {about} |"
        if inner:
            own = field.default if isinstance(field.default, BaseModel) else None
            yield from _rows(inner, f"{place}.", own, long)


def _section(annotation: object) -> tuple[type[BaseModel] | None, bool]:
    """The section of settings that an annotation names, and whether it is a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (list, tuple) and arguments:
        return _section(arguments[0])[0], True
    if origin in (types.UnionType, typing.Union):
        return next((found for a in arguments if (found := _section(a))[0]), (None, False))
    return None, False


def _default(
    field: FieldInfo, name: str, section_default: BaseModel | None, place: str, long: list[str]
) -> str:
    default = field.default
    if default is PydanticUndefined:
        if section_default is None:
            return "required"
        default = getattr(section_default, name)
    if default is None or isinstance(default, BaseModel) or default == "":
        return ""
    if not isinstance(default, tuple):
        return f"`{default}`"
    listed = ", ".join(map(str, default))
    if len(listed) + len("`[]`") <= _LONGEST:
        return f"`[{listed}]`"
    long.append(f"`{place}`: {listed}\n")
    return "[see below](#long-defaults)"


def kinds_page(text: str) -> str:
    """docs/kinds.md, whose present text is given, with updated tables."""
    served, unserved = (
        ["| kind | type | pool | becomes |", "|---|---|---|---|"],
        ["| kind | what to do |", "|---|---|"],
    )
    for row in KINDS:
        which = f" {row.which}" if row.which else ""
        type_ = f"`{row.type}`" if row.type else ""
        served.append(f"| `{row.resource.kind}`{which} | {type_} | `{row.pool}` | {row.about} |")
    served.append("| `Cluster` | | | read only |")
    switches = ["These pools are served only where a setting says so:", ""]
    for setting, rows in groupby((row for row in KINDS if row.setting), lambda row: row.setting):
        name, _, rest = setting.partition(" ")
        pools = ", ".join(f"`{row.pool}`" for row in rows)
        switches.append(f"* {pools}: set `{name}`{f' {rest}' if rest else ''}")
    unserved += [f"| `{row.resource.kind}` | {row.why}: {row.remedy} |" for row in UNSERVED]
    return filled(text, {"served": served, "settings": switches, "not served": unserved})


def clouds_page(text: str) -> str:
    """docs/clouds.md, whose present text is given, with updated tables."""
    lines = []
    for type_ in table.TYPES:
        of = table.balancers(type_)
        assert of
        source = " In the cloud, nodes see the client's address." if of.usual.keeps_source else ""
        usual = f"**{type_}**: without annotations, {of.says}.{source}"
        lines += [*textwrap.wrap(usual, _WIDTH, break_on_hyphens=False), ""]
        lines += ["| annotation | what clients see |", "|---|---|"] if of.annotations else []
        lines += [f"| `{one.name}` | {one.effect} |" for one in of.annotations]
        lines += [f"| `spec.loadBalancerClass: {name}` | {one.effect} |" for name, one in of.classes.items()]
        ignored = ", ".join(f"`{name}`" for name in of.ignored)
        wrapped = textwrap.wrap(f"Ignored: {ignored}.", _WIDTH, break_on_hyphens=False)
        lines += [*([""] if of.annotations else []), *wrapped, ""]
    return filled(text, {"load balancers": lines[:-1]})


def filled(text: str, sections: dict[str, list[str]]) -> str:
    """The text of a page with these lines between its marks."""
    for name, lines in sections.items():
        before, begin, rest = text.partition(_BEGIN.format(name))
        _, end, after = rest.partition(_END.format(name))
        assert end, f"the page has no place for {name}"
        text = "".join([before, begin, "\n\n", *(f"{line}\n" for line in lines), "\n", end, after])
    return text


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(settings_page())
    KINDS_PAGE.write_text(kinds_page(KINDS_PAGE.read_text()))
    CLOUDS_PAGE.write_text(clouds_page(CLOUDS_PAGE.read_text()))
