"""The bytes of every event type, committed: two implementations agree to the byte.

A difference here is a change of the stored format. If it is meant (a new field), write
the files anew, and read the diff: `python -m tests.schemas.test_golden`.
"""

from pathlib import Path

import pytest

from foldline.schemas.avsc import event_schema
from foldline.schemas.codec import Codec, encode_content, encode_envelope
from foldline.schemas.events import EVENT_TYPES, type_of
from foldline.schemas.registry import LocalRegistry, SchemaTable
from foldline.schemas.snapshots import encode_snapshot
from tests import happenings as h
from tests.samples import BARE_ENVELOPE, ENVELOPE, SAMPLES

FOLDER = Path(__file__).resolve().parents[1] / "golden"
WIDTH = 64


def bodies() -> dict[str, bytes]:
    """The bytes of every type, of the smallest envelope, and of a state."""
    envelope = encode_envelope(ENVELOPE)
    golden = {name: envelope + encode_content(event) for name, event in SAMPLES.items()}
    golden["bare-envelope"] = encode_envelope(BARE_ENVELOPE)
    golden["snapshot"] = encode_snapshot(
        h.waiting(expires_ms=9)
        .given(h.grant(scope="SESSION"), h.start(), h.backgrounded(), h.goal())
        .given(h.model_starts(), h.model_completes(usage={"input_tokens": 7}), h.steer())
        .state
    )
    return golden


def text_of(body: bytes) -> str:
    """Hex, in lines that a diff can show."""
    digits = body.hex()
    lines = [digits[i : i + WIDTH] for i in range(0, len(digits), WIDTH)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", sorted(bodies()))
def test_the_stored_bytes_are_those_that_were_committed(name: str) -> None:
    """To the byte."""
    golden = (FOLDER / f"{name}.hex").read_text(encoding="ascii")
    assert text_of(bodies()[name]) == golden


def test_no_golden_file_is_without_its_type() -> None:
    """What was removed is missed here first."""
    assert {path.stem for path in FOLDER.glob("*.hex")} == bodies().keys()


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_the_committed_bytes_are_still_read(name: str) -> None:
    """Every old byte, by the code of today."""
    registry = LocalRegistry(SchemaTable())
    body = bytes.fromhex((FOLDER / f"{name}.hex").read_text(encoding="ascii"))
    recorded = Codec(registry).decode(registry.id_of(name), body)
    assert (recorded.envelope, recorded.event) == (ENVELOPE, SAMPLES[name])
    assert type_of(recorded.event) == event_schema(EVENT_TYPES[name])["name"]


def write_golden() -> None:
    """Write the files anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, body in bodies().items():
        (FOLDER / f"{name}.hex").write_text(text_of(body), encoding="ascii")


if __name__ == "__main__":
    write_golden()
