"""What machines are told is plain, stable and complete."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.projections.views import iso_time, plain, state_view
from foldline.schemas.blocks import Blob, Block, Sealed
from foldline.schemas.events import UserFeedback
from foldline.schemas.state import SessionState


def test_times_are_iso_8601_in_utc_and_micros_beside_them() -> None:
    view = plain(SessionState("s", created_at=1_700_000_000_000_001))
    assert view["created_at"] == "2023-11-14T22:13:20.000001Z"
    assert view["created_at_us"] == 1_700_000_000_000_001


def test_no_time_is_null_in_both_forms() -> None:
    view = plain(SessionState("s"))
    assert (view["recorded_at"], view["recorded_at_us"]) == (None, None)


@pytest.mark.parametrize("time_us", [2**62, -(2**62)])
def test_a_time_beyond_all_years_is_given_in_micros_only(time_us: int) -> None:
    assert iso_time(time_us) is None
    assert plain(SessionState("s", created_at=time_us))["created_at_us"] == time_us


def test_bytes_are_hex_and_bodies_say_what_they_are() -> None:
    blob = Blob(sha256=b"\xff" * 2, size=2, media_type="text/plain")
    sealed = Sealed(key_id="k", nonce=b"\x01", ciphertext=b"\x02")
    assert plain(Block(kind="text", body=blob))["body"]["blob"]["sha256"] == "ffff"
    assert plain(Block(kind="text", body=sealed))["body"] == {
        "sealed": {"key_id": "k", "nonce": "01", "ciphertext": "02"}
    }
    assert plain(Block(kind="text", body="hi"))["body"] == "hi"


def test_what_is_no_number_is_null() -> None:
    assert plain(UserFeedback(target="t", score=math.nan))["score"] is None
    assert plain(UserFeedback(target="t", score=math.inf))["score"] is None


def test_a_counter_whose_name_ends_like_a_time_stays_a_counter() -> None:
    assert plain(SessionState("s", counts={"x_at": 3}))["counts"] == {"x_at": 3}


def test_a_state_comes_with_its_status_and_its_hash(log: Log) -> None:
    state = log.state("open-1")
    assert state is not None
    view = json.loads(json.dumps(state_view(state), allow_nan=False))
    assert view["status"] == "RUNNING"
    assert len(view["state_hash"]) == 64
    assert view["calls"]["m1:1"]["status"] == "RUNNING"


@pytest.mark.usefixtures("log")
def test_an_event_has_its_envelope_beside_it_and_its_own_fields_inside(
    run: Callable[..., Any],
) -> None:
    first, *_ = run("events", "open-1", "--json").lines()
    assert first["seq"] == 1
    assert first["type"] == "SessionCreated"
    assert first["actor"] == {"kind": "HARNESS", "id": "somebody"}
    assert first["event"]["agent"] == "coder"
    assert first["recorded_at"].endswith("Z")
    assert first["complete"] is True
