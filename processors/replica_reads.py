"""Reads of processors/reads.py over a replica: `ReplicaReads(replica, settings=...)`.

Beyond Reads: `listing(Listing) -> list[SessionSummary]` and `progress()`.
"""
