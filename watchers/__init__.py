"""Watchers: publish every change of every object on the bus."""
