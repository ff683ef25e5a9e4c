"""The base of all sections of the settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Immutable, without unknown names; errors do not quote values, which may be secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
