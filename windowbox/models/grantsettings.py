"""In which namespaces windowbox may work with Secrets."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class GrantSettings(BaseModel):
    """What `windowbox grant` grants."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespaces: tuple[str, ...] = Field(
        ("garden", "shoot--*"),
        description="Namespaces, by name or pattern (`shoot--*`), with whose Secrets `windowbox grant` lets "
        "the roles work.",
    )
