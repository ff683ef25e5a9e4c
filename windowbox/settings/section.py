"""The bases of all sections of the settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Immutable, without unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PrivateSection(Section):
    """Its errors do not quote values, which may be secrets."""

    model_config = ConfigDict(hide_input_in_errors=True)
