"""Webhooks: what API servers ask before they store an object, and what we answer."""
