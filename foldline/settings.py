"""Settings, from the environment: `FOLDLINE_<NAME>`; every limit has its name here.

FOLDLINE_URL        the log: memory:, sqlite:///path, jsonl:///path, kafka://host:port,
                    https://service
FOLDLINE_BLOBS      a folder for blobs, or s3://bucket/prefix; default: beside the log

A name with a part in it takes two underscores: any librdkafka property is
`FOLDLINE_KAFKA__EXTRA__SASL_USERNAME` (underscores become dots) or a key of the JSON
object `FOLDLINE_KAFKA__EXTRA`; where both name a property, its own variable counts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    ModelWrapValidatorHandler,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from foldline.errors import SettingsError
from foldline.places import default_state_dir, default_url

PREFIX = "FOLDLINE_"

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS

_Wait = Annotated[int, Field(ge=0, le=DAY_MS)]
_Period = Annotated[int, Field(ge=1, le=DAY_MS)]
_Size = Annotated[int, Field(ge=1, le=2**40)]


_ROLE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_ROLES = rf"^({_ROLE}( *, *{_ROLE})*)?$"


class KafkaSettings(BaseModel):
    """How brokers are reached.

    `extra` goes to librdkafka as it is, last: SASL, TLS, client.rack and whatever else
    a cluster wants. It may not name what foldline's promises rest on (see
    `foldline.kafka`).
    """

    extra: dict[str, str] = Field(default_factory=dict[str, str], repr=False)

    @field_validator("extra")
    @classmethod
    def _dotted(cls, extra: dict[str, str]) -> dict[str, str]:
        return {name.lower().replace("_", "."): text for name, text in extra.items()}


class _Environment(EnvSettingsSource):
    """The environment, whatever the order of its variables."""

    def explode_env_vars(
        self, field_name: str, field: FieldInfo, env_vars: Mapping[str, str | None]
    ) -> dict[str, Any]:
        """Lay a JSON object down first, then put what has a variable of its own on it."""
        return super().explode_env_vars(field_name, field, dict(sorted(env_vars.items())))


class Settings(BaseSettings):
    """What an operator can set. Times are in milliseconds, sizes in bytes.

    Raises:
        SettingsError: a value that means nothing, or is out of bounds.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True, frozen=True
    )

    url: str = Field(default_factory=default_url)
    blobs: str = ""
    inline_max_bytes: int = Field(default=64 * 1024, ge=0, le=900_000)
    """A body above this goes to the blob store before the append; an event must be able
    to hold one that is not."""
    blob_max_bytes: _Size = 256 * 1024 * 1024
    """The largest blob."""
    snapshot_every_events: int = Field(default=256, ge=1, le=2**31)
    """The log keeps a state every so many events of a session."""
    busy_timeout_ms: _Wait = 10_000
    """How long an append waits for another process's transaction."""
    jsonl_max_bytes: _Size = 1024 * 1024 * 1024
    """How large a log of JSON lines may grow: its index is in memory, its file is read
    whole at each opening."""
    lease_ttl_ms: _Period = 10_000
    """An owner that has not renewed its lease for so long is taken for dead."""
    lease_renew_ms: _Period = 2_500
    """How often an owner renews."""
    start_by_ms: _Wait = 5_000
    """How long after its start was recorded an effect may still begin."""
    approval_wait_ms: int = Field(default=300_000, ge=0, le=30 * DAY_MS)
    """How long a run of tools waits for a person's answer before it goes on without."""
    context_policy: Literal["lean", "roomy", "full"] = "lean"
    """How small an owner keeps what a model is shown, where it says nothing else."""
    inflight_max: int = Field(default=32, ge=1, le=128)
    """How many appends of one session a client has under way at once; with more than the
    window remembers, the first resend of many would be TOO_OLD."""
    resend_max: int = Field(default=8, ge=0, le=1_000)
    """How often a client resends an append that got no answer."""
    batch_max: int = Field(default=500, ge=1, le=10_000)
    """How many appends one transaction of a log on one machine takes at the most."""
    worker_batch_max: int = Field(default=2_000, ge=1, le=10_000)
    """The same of a worker's transaction: its commit costs as much as some 150 appends."""
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    topic_prefix: str = Field(default="foldline.", pattern=r"^[a-zA-Z0-9._-]{0,64}$")
    """What the names of a log's topics begin with."""
    topic_partitions: int = Field(default=16, ge=1, le=10_000)
    """How many partitions `topics create` makes: fixed for ever."""
    topic_replication: int = Field(default=3, ge=1, le=32)
    """How many brokers keep each partition; `min.insync.replicas` is one fewer."""
    registry_url: str = ""
    """The schema registry's Confluent API, with /apis/ccompat/v7 for Apicurio."""
    registry_wait_ms: _Wait = 60_000
    """How long one that starts waits for the registry before it gives up."""
    subject_prefix: str = Field(default="", pattern=r"^[a-zA-Z0-9._-]{0,64}$")
    """What subjects in the registry begin with, where logs share their schemas;
    default: the prefix of the topics."""
    registry_timeout_ms: int = Field(default=5_000, ge=100, le=60_000)
    """How long one request to the registry may take."""
    read_url: str = ""
    """The read service that answers a Kafka log's reads; without it, the process keeps
    its own replica of the partitions that it reads. Nodes that serve ranges of
    partitions are named together, with commas: each session's node is computed."""
    token: SecretStr = SecretStr("")
    """The bearer token for the read service."""
    state_dir: Path = Field(default_factory=default_state_dir)
    """Where workers keep tables and readers their replicas: all can be rebuilt."""
    checkpoint_dir: Path | None = None
    """Below which a read node writes copies of its store; default: `checkpoints` below
    the state folder."""
    read_wait_ms: _Period = 15_000
    """How long a read waits until a replica has what was committed when it was asked."""
    verdict_timeout_ms: _Period = 15_000
    """How long an append waits for its verdict, resends included."""
    resend_after_ms: _Period = 1_000
    """When an append without an answer is sent again the first time; then ever later."""
    worker_slot: str = Field(default="", pattern=r"^[a-zA-Z0-9._-]{0,64}$")
    """The stable name of this worker's place; default: host and a number."""
    table_flush_events: int = Field(default=20_000, ge=1, le=10_000_000)
    """After how many events a worker writes its table behind."""
    table_flush_ms: _Period = 1_000
    """After how long a worker writes its table behind; whichever comes first."""
    cached_sessions: int = Field(default=20_000, ge=100, le=10_000_000)
    """How many sessions' states a worker or a reader keeps in memory, where it has every
    partition: each has its even share, 100 at the least."""
    snapshot_lag_events: int = Field(default=50_000, ge=1, le=100_000_000)
    """How far the end of `events` may run ahead of a partition's low-water mark."""
    transaction_timeout_ms: int = Field(default=9_000, ge=1_000, le=40_000)
    """When the broker aborts a worker's transaction that does not go on. A stock broker
    looks every 10 s for such, so another worker takes over in 20 s at the most. A worker
    that is in one step for a minute ends itself: a call may take as long as this."""
    failed_retry_ms: _Period = 10 * 60_000
    """After how long a worker restores a partition again whose events cannot be trusted:
    somebody may have brought back what was gone. Each time reads the whole partition."""
    http_host: str = "127.0.0.1"
    """Where `serve` and a worker's health listen."""
    http_port: int = Field(default=8080, ge=0, le=65_535)
    """The port of `serve`; 0: any free one."""
    http_body_max_bytes: int = Field(default=8 * 1024 * 1024, ge=1_200_000, le=2**31)
    """The largest body of a request, but for a blob's (`blob_max_bytes`)."""
    http_body_timeout_ms: _Period = 30_000
    """How long the body of a request may take to come in."""
    http_send_timeout_ms: _Period = 30_000
    """How long a client may leave a piece of what it is sent unread before it is let go."""
    http_connections_max: int = Field(default=4_096, ge=1, le=1_000_000)
    """How many connections `serve` holds at once; beyond it, it answers 503."""
    http_streams_max: int = Field(default=2_048, ge=1, le=1_000_000)
    """How many streams, long polls and reads of a `min_seq` wait for events at once."""
    tenant_streams_max: int = Field(default=1_024, ge=1, le=1_000_000)
    """How many of these are one tenant's."""
    http_stream_buffer_bytes: _Size = 1024 * 1024
    """How much of a session's events a stream or a page holds in memory at once; at
    least one event."""
    http_heartbeat_ms: _Period = 15_000
    """How often a stream without events says that it lives."""
    http_readers: int = Field(default=16, ge=1, le=1_000)
    """How many reads of the log run at once; the others wait."""
    http_appenders: int = Field(default=32, ge=1, le=1_000)
    """How many appends wait for their verdicts at once; the others wait to be sent."""
    http_waiting_max: int = Field(default=1_024, ge=1, le=1_000_000)
    """How many requests wait for a reader or an appender; beyond it, 503."""
    warm_sessions: int = Field(default=1_000, ge=0, le=1_000_000)
    """Of how many live sessions `serve` keeps in memory what their next contexts are
    built from; 0: of none, each is read when it is asked for."""
    warm_bytes: _Size = 16 * 1024 * 1024
    """How many bytes of stored events and texts that may be, of all sessions together;
    decoded, small events take ten times as much memory."""
    warm_session_bytes: _Size = 4 * 1024 * 1024
    """The same of one session. One that needs more is not kept, and gets so much of it
    in one answer."""
    operator_roles: str = Field(default="", pattern=_ROLES)
    """The roles, with commas, of whoever answers requests without a token: on a file, on
    brokers, on a service without tokens. Without any, whoever can write has every role."""
    tokens_file: str = ""
    """The bearer tokens that `serve` takes, by their SHA-256: see `foldline tokens`."""
    token_rate_per_s: int = Field(default=1_000, ge=1, le=10_000_000)
    """How many requests and appended events a second one token may make; beyond, 429."""
    tenant_rate_per_s: int = Field(default=5_000, ge=1, le=10_000_000)
    """The same for all tokens of a tenant together."""
    health_port: int = Field(default=0, ge=-1, le=65_535)
    """The port of a worker's health and metrics; 0: any free one, -1: none."""
    redaction_rules: Path | None = None
    """A file with rules and known values beside the default ones (TOML)."""
    import_record_max_bytes: _Size = 64 * 1024 * 1024
    """The longest line that an importer takes in; a longer one is rejected."""
    fleet_pane_ms: int = Field(default=60_000, ge=1_000, le=DAY_MS, multiple_of=1_000)
    """What the fleet counts together, whole seconds: every window is a multiple of it.
    Another one than before counts anew, from the first event."""
    fleet_window_ms: int = Field(default=300_000, le=DAY_MS)
    """The window that is shown where nobody says another; a multiple of a pane."""
    fleet_keep_ms: int = Field(default=DAY_MS, le=30 * DAY_MS)
    """How long the fleet keeps what it counted, a window or more; what is older is not
    counted."""
    fleet_panes_max: int = Field(default=100_000, ge=100, le=10_000_000)
    """How many panes a fleet worker keeps; beyond it, the oldest go early."""
    fleet_tell_ms: int = Field(default=HOUR_MS, ge=1_000, le=30 * DAY_MS)
    """A loop is recorded in its session if the event that closed it is younger than that;
    an older one is counted, and leaves its session alone."""
    fleet_commit_ms: int = Field(default=2_000, ge=100, le=60_000)
    """How often the fleet commits how far it is: what it reads again when it is killed."""
    fleet_loop_calls: int = Field(default=3, ge=2, le=1_000)
    """How often the same call, with nothing new in its outcome, is a loop."""
    fleet_loop_failures: int = Field(default=3, ge=2, le=1_000)
    """How often the same failure is a loop."""
    fleet_loop_compactions: int = Field(default=3, ge=2, le=1_000)
    """How many compactions without progress between them are a loop."""
    fleet_loop_denials: int = Field(default=3, ge=2, le=1_000)
    """How often the same call, asked for and not allowed, is a loop."""
    fleet_loop_within_calls: int = Field(default=30, ge=1, le=10_000)
    """What comes again only after more calls than that begins anew."""

    @classmethod
    def settings_customise_sources(  # the signature is the library's
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given in Python, then the environment; no files."""
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, _Environment(settings_cls)

    @property
    def roles_of_operator(self) -> frozenset[str]:
        """The roles of whoever answers without a token; empty: every role."""
        return frozenset(filter(None, map(str.strip, self.operator_roles.split(","))))

    @property
    def copies_dir(self) -> Path:
        """Below which a read node writes copies of its store."""
        return self.checkpoint_dir or self.state_dir / "checkpoints"

    @field_validator("lease_renew_ms")
    @classmethod
    def _renewed_in_time(cls, renew_ms: int, info: ValidationInfo) -> int:
        """Without this an owner that lives would be taken for dead."""
        ttl_ms = info.data.get("lease_ttl_ms")
        if ttl_ms is not None and renew_ms >= ttl_ms:
            raise ValueError(f"must be less than FOLDLINE_LEASE_TTL_MS, which is {ttl_ms}")
        return renew_ms

    @field_validator("fleet_window_ms")
    @classmethod
    def _of_whole_panes(cls, window_ms: int, info: ValidationInfo) -> int:
        """Nothing is counted between two borders of panes."""
        pane_ms = info.data.get("fleet_pane_ms")
        if pane_ms is not None and (window_ms < pane_ms or window_ms % pane_ms):
            raise ValueError(
                f"must be a multiple of FOLDLINE_FLEET_PANE_MS, which is {pane_ms}"
            )
        return window_ms

    @field_validator("fleet_keep_ms")
    @classmethod
    def _of_a_window(cls, keep_ms: int, info: ValidationInfo) -> int:
        """A window whose first panes are gone would show too little."""
        window_ms = info.data.get("fleet_window_ms")
        if window_ms is not None and keep_ms < window_ms:
            raise ValueError(
                f"must be at least FOLDLINE_FLEET_WINDOW_MS, which is {window_ms}"
            )
        return keep_ms

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Say which setting is wrong, as one of foldline's errors."""
        try:
            return handler(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
            secret = name.startswith(f"{PREFIX}KAFKA")  # a password may stand there
            value = "..." if secret else str(first["input"])
            raise SettingsError(name, value, first["msg"]) from (None if secret else error)
