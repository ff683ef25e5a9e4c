"""The message bus: announcements, wishes and reports come in, and go out to their readers.

NATS keeps them in streams, buckets, work queues and leases.
"""
