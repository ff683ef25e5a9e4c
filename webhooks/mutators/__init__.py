"""Webhooks that change objects of seeds and Shoots: from a review to the changed object, None, or Denied."""
