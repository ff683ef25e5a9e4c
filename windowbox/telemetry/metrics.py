"""All metrics. Every process serves them at /metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

events_seen = Counter(
    "windowbox_events_seen_total", "Changes put on the bus", ["cluster", "kind", "operation"]
)
watch_lag = Histogram(
    "windowbox_watch_lag_seconds", "From an event's arrival to its place on the bus", ["kind"], buckets=_FAST
)
listings = Counter("windowbox_listings_total", "Kinds of clusters listed by the watcher", ["reason"])
objects_bytes = Gauge("windowbox_objects_bytes", "Bytes that the stream OBJECTS holds")
objects_limit = Gauge("windowbox_objects_limit_bytes", "Bytes that it may hold")
clusters_over_share = Gauge("windowbox_clusters_over_share", "Clusters that have used up their share of it")

bus_latency = Histogram(
    "windowbox_bus_latency_seconds", "From a wish being stored to its run", ["pool"], buckets=_FAST
)
in_flight = Gauge("windowbox_in_flight", "Items being worked on", ["pool"])
runs = Histogram("windowbox_run_seconds", "Runs by outcome", ["pool", "outcome"], buckets=_FAST)
quarantine = Counter("windowbox_quarantined_total", "Items that took their worker down too often", ["pool"])
superseded = Counter("windowbox_superseded_total", "Runs that came too late to report", ["pool"])
swept = Counter("windowbox_swept_total", "Wishes that a sweep put back into the queue", ["pool"])
orphans = Counter("windowbox_orphans_total", "Objects gone before their deletion, cleaned up after", ["pool"])

guarded = Counter("windowbox_guarded_total", "Exceptions that a long-lived task has survived", ["task"])
unmapped = Counter("windowbox_unmapped_total", "Changes whose mapping to keys failed", ["pool"])

waiting = Gauge("windowbox_queue_waiting", "Items waiting for a worker", ["pool"])
oldest = Gauge("windowbox_queue_oldest_seconds", "Age of the oldest unfinished wish", ["pool"])

patches = Counter("windowbox_patches_total", "Writes to the Kubernetes API", ["kind", "part", "result"])

load_balancers = Gauge("windowbox_load_balancers", "Load balancers carried by the edge we own")
load_balancers_refused = Gauge(
    "windowbox_load_balancers_refused", "Load balancers that have too many endpoints for their cluster"
)
addresses_used = Gauge("windowbox_addresses_used", "Addresses given away", ["range", "family"])
addresses_total = Gauge("windowbox_addresses_total", "Addresses there are", ["range", "family"])

reviews = Counter("windowbox_reviews_total", "Requests to webhooks", ["webhook", "outcome"])
reviews_unnoted = Counter("windowbox_reviews_unnoted_total", "Decisions that the journal did not get")
reviewers_crowded = Counter(
    "windowbox_reviewers_crowded_total", "Connections to webhooks without a free place"
)
review_seconds = Histogram(
    "windowbox_review_seconds", "From a request's arrival to its answer", ["webhook"], buckets=_FAST
)

loop_lag = Histogram(
    "windowbox_loop_lag_seconds", "How late the event loop comes to what is due", buckets=_FAST
)

version_supported = Gauge(
    "windowbox_version_supported", "Whether windowbox is known to work with it", ["component", "version"]
)

garden_access = Gauge(
    "windowbox_garden_access", "Whether our object in the garden could be annotated", ["kind"]
)

process_started = Gauge("windowbox_process_started_seconds", "When this process began, as a Unix time")

# Copied from the connection to the name servers, which has counters of its own.
dns_messages = Counter("windowbox_dns_messages_total", "DNS update messages sent", ["zone"])
dns_rrsets = Counter("windowbox_dns_rrsets_total", "Changes they carried", ["zone"])
dns_reconnections = Counter("windowbox_dns_reconnections_total", "Connections that came back", ["zone"])
dns_waiting = Gauge("windowbox_dns_waiting", "Changes waiting for a message", ["zone"])
dns_connected = Gauge("windowbox_dns_connected", "Whether a name server of the zone is reached", ["zone"])
dns_breaker = Gauge("windowbox_dns_breaker_open", "Whether a zone refuses everything", ["zone"])
