"""OperatingSystemConfigs come in; the script for a new machine, and additions for a running one go out."""
