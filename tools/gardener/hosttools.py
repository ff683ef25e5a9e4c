"""Programs of this machine that containers need, with their libraries: iptables and the like."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from sandbox.nodes import images
from windowbox.errors import Missing

_FAMILY = tuple(f"{name}{part}" for name in ("iptables", "ip6tables") for part in ("", "-save", "-restore"))
"""Names under which the one program `xtables-nft-multi` is called."""
_ZONES = Path("/usr/share/zoneinfo")
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


def files(names: Iterable[str]) -> tuple[Mapping[str, Path], Mapping[str, str]]:
    """The programs `names` in /usr/sbin and their libraries, and links to them."""
    found, links = dict[str, Path](), dict[str, str]()
    for name in names:
        program = _program("xtables-nft-multi" if name == "iptables" else name)
        found[f"usr/sbin/{program.name}"] = program
        if name == "iptables":
            links |= {f"usr/sbin/{one}": program.name for one in _FAMILY}
            # iptables loads one for each match and target.
            found |= {str(one).lstrip("/"): one for one in Path("/usr/lib").glob("*/xtables/*.so")}
    return found | images.shared_libraries(found.values()), links


def zones() -> Mapping[str, Path]:
    """The time zones that this machine knows, where Go searches for them."""
    return {str(one).lstrip("/"): one for one in sorted(_ZONES.glob("[A-Z]*/**/*")) if one.is_file()}


def _program(name: str) -> Path:
    path = shutil.which(name, path=_PATH)
    if path is None:
        raise Missing(f"{name} is not on this machine: run `make setup`")
    return Path(path)
