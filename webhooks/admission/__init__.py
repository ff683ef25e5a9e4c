"""Webhooks of the garden: a review comes in; the changed object, None, or Denied goes out."""
