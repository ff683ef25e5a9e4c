"""The message bus: NATS streams, buckets, work queues and leases, and the messages on them."""
