"""Webhooks of the garden, for objects of its users: from a review to the changed object, None, or Denied."""
