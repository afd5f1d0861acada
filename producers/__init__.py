"""How a harness writes.

The session client, the adapters and importers for harnesses built elsewhere, and what is
redacted before anything is appended.
"""
