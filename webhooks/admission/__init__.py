"""Webhooks of the garden: objects that users write."""
