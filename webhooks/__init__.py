"""Webhooks: requests of API servers before they store an object, and the answers."""
