"""How properties are tested: without a limit of time, which a busy machine would break."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("unit")
