"""What a view of the page is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ui.rates import Meter
from windowbox.settings.lbsettings import LoadBalancerSettings

if TYPE_CHECKING:
    from ui.mirror import Mirror

Params = Mapping[str, str]
"""The rest of a view's path and its query, by name."""


@dataclass(frozen=True)
class Source:
    """Where views read."""

    mirror: Mirror
    monitor: str = ""
    """URL of the NATS server's monitoring."""
    loadbalancer: LoadBalancerSettings = field(default_factory=LoadBalancerSettings)
    """Which Services are ours."""
    meter: Meter = field(default_factory=Meter)


@dataclass(frozen=True)
class View:
    """A view: how its model is read, and what says that it may have changed.

    Its template is `NAME.html`. Whoever looks at one place shares one reading and one rendering.
    """

    name: str
    title: str
    about: str
    read: Callable[[Source, Params], Awaitable[Mapping[str, Any]]]
    """The variables of the template."""
    topics: frozenset[str] = frozenset()
    """Changes of the mirror after which it is read again."""
    heard: Callable[[Params], tuple[str, ...]] = lambda _: ()
    """Subjects of the bus whose messages have the same effect."""
    interval: float | None = None
    """Seconds after which it is read again in any case, for what no event says, while somebody looks."""
    path: tuple[str, ...] = ()
    """Names of what follows its own name in the path."""
    query: tuple[str, ...] = ()
    """Names of parameters that it knows."""
    listed: bool = True
    """Whether the navigation leads to it."""
