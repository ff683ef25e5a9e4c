"""OperatingSystemConfigs: what a new machine runs first, and what is kept up to date on it."""
