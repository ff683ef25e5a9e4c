"""docs/settings.md, written from the settings themselves: `python -m commands.settings_page`."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from windowbox.settings.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

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


_LONGEST = 120
"""Characters of a default that still fits into a cell of the table."""


def page() -> str:
    """The whole page."""
    long = [
        f"`{place}`: {', '.join(map(str, default))}\n"
        for place, default in _lists(Settings, "")
        if len(_shown(default)) > _LONGEST
    ]
    defaults = "\n## Long defaults\n\n" + "\n".join(long) if long else ""
    return _HEAD + "\n".join(_rows(Settings, "")) + "\n" + defaults + _EXAMPLE


def _lists(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The settings whose default is a list."""
    for name, field in model.model_fields.items():
        if isinstance(field.default, tuple):
            yield f"{prefix}{name}[]", field.default
        elif isinstance(field.default, BaseModel):
            yield from _lists(type(field.default), f"{prefix}{name}.")


def _rows(model: type[BaseModel], prefix: str, made: BaseModel | None = None) -> Iterator[str]:
    """Rows of the table. `made` is the default of the section."""
    for name, field in model.model_fields.items():
        inner, many = _section(field.annotation)
        place = f"{prefix}{name}" + ("[]" if many else "")
        if inner:
            if many or field.description:
                yield f"| `{place}` | {_default(field, name, made)} | {_description(field, inner)} |"
            default = field.default if isinstance(field.default, BaseModel) else None
            yield from _rows(inner, f"{place}.", default)
        else:
            yield f"| `{place}` | {_default(field, name, made)} | {field.description or ''} |"


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


def _default(field: FieldInfo, name: str, made: BaseModel | None) -> str:
    default = field.default
    if default is PydanticUndefined:
        if made is None:
            return "required"
        default = getattr(made, name)
    if default is None or isinstance(default, BaseModel):
        return ""
    if isinstance(default, tuple):
        shown = _shown(default)
        return shown if len(shown) <= _LONGEST else "[see below](#long-defaults)"
    return f"`{default}`" if default != "" else ""


def _shown(default: tuple[object, ...]) -> str:
    return f"`[{', '.join(map(str, default))}]`"


def _description(field: FieldInfo, section: type[BaseModel]) -> str:
    return field.description or (section.__doc__ or "").split("\n")[0]


if __name__ == "__main__":
    PAGE.write_text(page())
