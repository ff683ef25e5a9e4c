"""Webhooks of seeds and Shoots: a review comes in; the changed object, None, or Denied goes out."""
