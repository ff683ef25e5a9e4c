"""The ground floor: errors, models, settings, the table of kinds, telemetry, clients of libraries."""
