"""What a node counts, for Prometheus. No label holds an id, a tenant or content."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The counters of one node, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "foldline_service_requests",
            "Requests answered, by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "foldline_service_request_seconds",
            "Time to the end of the answer; streams are left out.",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.verdicts = Counter(
            "foldline_service_verdicts",
            "Appends answered, by the verdict's kind.",
            ("kind",),
            registry=self.registry,
        )
        self.streams = Gauge(
            "foldline_service_streams",
            "Streams, long polls and reads of a seq that wait for events.",
            registry=self.registry,
        )
        self.under_way = Gauge(
            "foldline_service_calls",
            "Calls of the log that run or wait, by lane.",
            ("lane",),
            registry=self.registry,
        )
        self.sources = Counter(
            "foldline_service_context_sources",
            "Answers with what a context is built from: kept, grown or read.",
            ("how",),
            registry=self.registry,
        )
        self.warm_sessions = Gauge(
            "foldline_service_warm_sessions",
            "Sessions of which the next context's sources are in memory.",
            registry=self.registry,
        )
        self.warm_bytes = Gauge(
            "foldline_service_warm_bytes",
            "Stored bytes of those sources.",
            registry=self.registry,
        )
        self.behind = Gauge(
            "foldline_service_replica_behind",
            "Offsets between a partition's end, as last seen, and what is read of it.",
            ("partition",),
            registry=self.registry,
        )
        self.read_bytes = Gauge(
            "foldline_service_replica_read_bytes",
            "Bytes of events that brokers have sent of a partition since the start.",
            ("partition",),
            registry=self.registry,
        )
        self.skipped = Gauge(
            "foldline_service_replica_skipped_events",
            "Records of a partition that no worker wrote, seen since the start.",
            ("partition",),
            registry=self.registry,
        )
        self.caught_up = Gauge(
            "foldline_service_replica_caught_up",
            "1 where a partition has been read to its end once.",
            ("partition",),
            registry=self.registry,
        )
        self.stopped = Gauge(
            "foldline_service_replica_stopped",
            "1 where a partition is read no further: none of its reads is answered.",
            ("partition",),
            registry=self.registry,
        )
