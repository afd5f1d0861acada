"""Ids that follow from what they name, so that who says it again says it under the same."""

import hashlib
import uuid


def digest_of_parts(*parts: str | bytes) -> bytes:
    """The SHA-256 of some parts.

    Each part goes in with its length, so that no two lists of parts give the same bytes.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def derived_id(*parts: str) -> str:
    """The UUIDv8 of some parts: their SHA-256, with version and variant set."""
    raw = bytearray(digest_of_parts(*parts)[:16])
    raw[6] = (raw[6] & 0x0F) | 0x80
    raw[8] = (raw[8] & 0x3F) | 0x80
    return str(uuid.UUID(bytes=bytes(raw)))


def steering_id(session_id: str, key: str) -> str:
    """The event id of steering with an idempotency key: whoever sends it, by any way."""
    return derived_id("steering", session_id, key)


def cancellation_id(session_id: str, cause: str) -> str:
    """The event id of a cancellation that stems from another one, up the tree."""
    return derived_id("cancellation", session_id, cause)
