"""Patchers: reported statuses come in from the bus; writes of status and Events go out to the clusters."""
