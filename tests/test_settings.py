"""Settings: every limit has bounds, and what is outside is refused by its name."""

import os
import subprocess
import sys

import pytest

from foldline.errors import SettingsError
from foldline.settings import Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_max", 0),
        ("snapshot_every_events", 0),
        ("snapshot_every_events", -1),
        ("inflight_max", 0),
        ("inflight_max", 129),  # beyond the window a resend is TOO_OLD
        ("resend_max", -1),
        ("inline_max_bytes", -1),
        ("inline_max_bytes", 1_000_000),  # an event could not hold it
        ("blob_max_bytes", 0),
        ("import_record_max_bytes", 0),
        ("busy_timeout_ms", -1),
        ("busy_timeout_ms", 2**40),  # SQLite would wrap it round
        ("lease_ttl_ms", 0),
        ("lease_renew_ms", 0),
        ("start_by_ms", -1),
        ("approval_wait_ms", -1),
        ("transaction_timeout_ms", 40_001),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_name(name: str, value: int) -> None:
    """Also where it is given in Python: the name of the variable says which it is."""
    with pytest.raises(SettingsError) as caught:
        Settings(**{name: value})  # pyright: ignore[reportArgumentType]
    assert (caught.value.name, caught.value.value) == (
        f"FOLDLINE_{name.upper()}",
        str(value),
    )
    assert "than" in caught.value.wanted


def test_the_roles_of_an_operator_are_names_with_commas() -> None:
    assert Settings(operator_roles="a, b.c").roles_of_operator == {"a", "b.c"}
    assert Settings().roles_of_operator == frozenset()
    for text in (",", "a,", "a b", "ä"):
        with pytest.raises(SettingsError, match="FOLDLINE_OPERATOR_ROLES"):
            Settings(operator_roles=text)


def test_a_variable_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of foldline's errors, whatever checks it inside."""
    monkeypatch.setenv("FOLDLINE_BATCH_MAX", "many")
    with pytest.raises(SettingsError, match="FOLDLINE_BATCH_MAX='many'"):
        Settings()


def test_every_number_among_the_settings_has_bounds() -> None:
    """A new one is not forgotten."""
    numbers = [n for n, info in Settings.model_fields.items() if info.annotation is int]
    assert len(numbers) > 10
    for name in numbers:
        for value in (-2, 2**62):  # -1 of a port: none
            with pytest.raises(SettingsError):
                Settings(**{name: value})  # pyright: ignore[reportArgumentType]


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """`FOLDLINE_BLOBS=` must not strew blobs over the current folder."""
    monkeypatch.setenv("FOLDLINE_BLOBS", "")
    monkeypatch.setenv("FOLDLINE_BATCH_MAX", "")
    assert (Settings().blobs, Settings().batch_max) == ("", 500)


@pytest.mark.parametrize("value", ["nowhere", "CP_TOOL_AFTER_EFFECT:soon"])
def test_a_crash_point_that_does_not_exist_is_refused(value: str) -> None:
    """A test that would never be killed proves nothing."""
    done = subprocess.run(
        [sys.executable, "-c", "import foldline.faults"],
        env=os.environ | {"FOLDLINE_CRASH_AT": value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"SettingsError: FOLDLINE_CRASH_AT={value!r}" in done.stderr


def test_an_owner_renews_its_lease_before_it_runs_out() -> None:
    with pytest.raises(SettingsError, match=r"FOLDLINE_LEASE_RENEW_MS='500'.*LEASE_TTL_MS"):
        Settings(lease_ttl_ms=500, lease_renew_ms=500)
    with pytest.raises(SettingsError, match="FOLDLINE_LEASE_RENEW_MS='2500'"):
        Settings(lease_ttl_ms=1_000)
    assert Settings(lease_ttl_ms=500, lease_renew_ms=499).lease_renew_ms == 499


@pytest.mark.parametrize("window_ms", [30_000, 90_000, 0])
def test_a_window_of_the_fleet_is_made_of_whole_panes(window_ms: int) -> None:
    with pytest.raises(SettingsError, match="FLEET_PANE_MS, which is 60000"):
        Settings(fleet_window_ms=window_ms)
    with pytest.raises(SettingsError, match="FLEET_PANE_MS, which is 7000"):
        Settings(fleet_pane_ms=7_000)
    assert Settings(fleet_pane_ms=30_000, fleet_window_ms=90_000)


def test_the_fleet_keeps_what_its_window_shows() -> None:
    with pytest.raises(SettingsError, match="FLEET_WINDOW_MS, which is 300000"):
        Settings(fleet_keep_ms=299_999)
    assert Settings(fleet_window_ms=60_000, fleet_keep_ms=60_000)


@pytest.mark.parametrize("json_first", [True, False])
def test_a_property_of_its_own_variable_lies_over_those_of_the_json_object(
    monkeypatch: pytest.MonkeyPatch,
    json_first: bool,  # noqa: FBT001 - a table
) -> None:
    """A file may hold what all share, and a secret only the password."""
    given = {
        "FOLDLINE_KAFKA__EXTRA": '{"sasl.username": "ada", "sasl.password": "x"}',
        "FOLDLINE_KAFKA__EXTRA__SASL_PASSWORD": "hunter2",
    }
    for name, value in sorted(given.items(), reverse=not json_first):
        monkeypatch.setenv(name, value)
    both = {"sasl.username": "ada", "sasl.password": "hunter2"}
    assert Settings().kafka.extra == both


def test_a_password_for_the_brokers_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where settings are printed, nor where they are refused."""
    monkeypatch.setenv("FOLDLINE_KAFKA__EXTRA__SASL_PASSWORD", "hunter2")
    settings = Settings()
    assert settings.kafka.extra == {"sasl.password": "hunter2"}
    assert "hunter2" not in repr(settings)
    monkeypatch.setenv("FOLDLINE_KAFKA__EXTRA", '["hunter2"]')
    with pytest.raises(SettingsError) as caught:
        Settings()
    assert "hunter2" not in str(caught.value)
