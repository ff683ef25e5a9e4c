"""Webhooks: an AdmissionReview of an API server comes in; allowed, a JSON patch, or a denial goes out.

`table.py` lists the webhooks; each is a pure function of the review and of one looked-up object.
"""
