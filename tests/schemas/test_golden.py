"""The bytes of every event type, committed: two implementations agree to the byte.

A difference here is a change of the stored format. If it is meant (a new field), write
the files anew, and read the diff: `python -m tests.schemas.test_golden`.
"""

import json
from pathlib import Path

import pytest

from foldline.schemas.avsc import event_schema
from foldline.schemas.codec import Codec, encode_content, encode_envelope
from foldline.schemas.events import EVENT_TYPES, type_of
from foldline.schemas.frozen import FOLDER as FROZEN
from foldline.schemas.frozen import versions_of
from foldline.schemas.record_codec import encode_record
from foldline.schemas.registry import LocalRegistry, SchemaTable
from foldline.schemas.registry_client import frozen_text
from foldline.schemas.snapshots import encode_snapshot
from foldline.schemas.topic_records import LostSession, LowWater
from tests import happenings as h
from tests.samples import BARE_ENVELOPE, ENVELOPE, SAMPLES

FOLDER = Path(__file__).resolve().parents[1] / "golden"
WIDTH = 64

OLDER = sorted(
    (path.stem, path.stem.partition(".v")[0], int(path.stem.partition(".v")[2]))
    for path in FOLDER.glob("*.v*.hex")
)
"""The golden files of older frozen versions: `Name.vN.hex`, as (stem, Name, N)."""


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
    golden |= {type(one).__name__: encode_record(one) for one in RECORDS}
    return golden


RECORDS = (
    LowWater(
        partition=3,
        fold_version=1,
        low=1_000,
        input_offset=2_000,
        rules_version=1,
        schema_ids=(4, 5),
        low_input_offset=900,
    ),
    LostSession(
        session_id="session-é",
        tenant="tenant",
        partition=3,
        known_seq=5,
        next_seq=9,
        from_offset=1_000,
        to_offset=1_200,
        detail="why",
    ),
)
"""What a restore reads beside states: kept as long as the log is."""


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
    newest = {path.stem for path in FOLDER.glob("*.hex")} - {older for older, _, _ in OLDER}
    assert newest == bodies().keys()


@pytest.mark.parametrize(("stem", "name", "version"), OLDER)
def test_bytes_of_an_older_version_are_read_with_defaults_for_what_is_new(
    stem: str, name: str, version: int
) -> None:
    """What was written before a field was there is what it was."""
    registry = LocalRegistry(SchemaTable())
    text = frozen_text(name, version)
    body = bytes.fromhex((FOLDER / f"{stem}.hex").read_text(encoding="ascii"))
    recorded = Codec(registry).decode(registry.add(text), body)
    there = {field["name"] for field in json.loads(text)["fields"]}
    model = EVENT_TYPES[name]
    since = {
        field: known.get_default(call_default_factory=True)
        for field, known in model.model_fields.items()
        if field not in there
    }
    assert since
    assert (recorded.envelope, recorded.event) == (
        ENVELOPE,
        SAMPLES[name].model_copy(update=since),
    )


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_every_older_version_of_a_type_has_golden_bytes(name: str) -> None:
    """A version is never frozen without bytes of the one before being kept."""
    older = range(1, versions_of(FROZEN, name)[-1])
    assert [(name, version) for version in older] == [
        (of, version) for _, of, version in OLDER if of == name
    ]


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
