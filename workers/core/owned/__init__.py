"""Owned objects: how extension objects write, watch and delete them."""
