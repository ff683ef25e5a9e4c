"""The machine driver: each Machine becomes a Pod, which joins its Shoot as a node."""
