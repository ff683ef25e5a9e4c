"""windowbox: a cloud that fits on one machine."""
