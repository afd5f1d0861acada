"""`foldline topics`: the topics of a log on Kafka, made, compared, put under new rules."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from foldline.cli.context import Context
from foldline.cli.failures import NO, OK

if TYPE_CHECKING:
    from foldline.topics import Drift

topics = App(
    name="topics",
    help="Make, check and upgrade the topics of a log on Kafka.",
    help_format="plaintext",
    help_epilogue="",
    version_flags=(),
)


@topics.command
def create(
    *,
    registry: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Make the topics that are missing, and give the log its identity.

    The number of partitions (FOLDLINE_TOPIC_PARTITIONS) is fixed for ever. What is there
    is left as it is: again is safe, also by two at once. Register the schemas first.

    Args:
        registry: The registry's Confluent API (env FOLDLINE_REGISTRY_URL).
        context: Where to read and write.
    """
    from foldline.errors import TopicDriftError  # late: --help does without
    from foldline.kafka import cluster_of
    from foldline.kafka_admin import (
        create_topics,
        find_drift_of_new,
        in_words,
        is_grave,
        require_events,
    )
    from foldline.kafka_meta import found_log, read_said

    settings = context.settings_for(registry)
    cluster = cluster_of(settings)
    with context.registry(registry) as client:
        known = read_said(cluster, settings, schemas=client).meta
        if known:
            require_events(cluster, settings)
        partitions = known.partitions if known else settings.topic_partitions
        made = create_topics(cluster, settings, partitions=partitions)
        drifts = find_drift_of_new(cluster, settings, partitions=partitions)
        # A new log must not be told fewer partitions than the topics of an old one have.
        grave = [
            in_words(drift)
            for drift in drifts
            if is_grave(drift, cluster.names)
            or (known is None and drift.what == "partitions")
        ]
        if grave:
            raise TopicDriftError(cluster.url, grave)
        meta, new = found_log(cluster, settings, registry=client, partitions=partitions)
    if context.out.json:
        view = {"log_id": meta.log_id, "partitions": meta.partitions, "new": new}
        context.out.record({**view, "made": made})
        return OK
    for name in made:
        context.out.line((name, "bold"))
    context.out.line(
        (f"{len(made)} topics made", "green" if made else ""),
        (f"; log {meta.log_id}, {meta.partitions} partitions", ""),
    )
    if meta.partitions != settings.topic_partitions:
        context.out.remark(
            f"FOLDLINE_TOPIC_PARTITIONS is {settings.topic_partitions}: not this log's; "
            "the number of partitions is fixed for ever"
        )
    return OK


@topics.command
def check(
    *,
    registry: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Compare the topics with what they must be; exit code 1 if anything differs.

    The changelog of a fleet is one of them as soon as a fleet worker has made it. Also
    says which settings of the brokers make a take-over slow. Replication is
    FOLDLINE_TOPIC_REPLICATION; the number of partitions is the log's own.

    Args:
        registry: The registry's Confluent API (env FOLDLINE_REGISTRY_URL).
        context: Where to read and write.
    """
    from foldline.kafka import cluster_of  # late: see above
    from foldline.kafka_admin import broker_warnings, find_drift
    from foldline.kafka_meta import read_meta
    from foldline.projections.fleet_rows import version_of

    settings = context.settings_for(registry)
    cluster = cluster_of(settings)
    with context.registry(registry) as client:
        meta = read_meta(cluster, settings, schemas=client)
    drifts = find_drift(
        cluster, settings, partitions=meta.partitions, fleet=version_of(settings)
    )
    warnings = broker_warnings(cluster, settings)
    _show_drifts(context, drifts, warnings)
    return NO if drifts else OK


def _show_drifts(context: Context, drifts: "list[Drift]", warnings: list[str]) -> None:
    if context.out.json:
        from foldline.projections.views import plain  # late: see above

        view = {"ok": not drifts, "drift": plain(drifts), "warnings": warnings}
        context.out.record(view)
        return
    for drift in drifts:
        context.out.line(
            (f"{drift.topic} ", "bold"),
            (f"{drift.what}: ", "cyan"),
            (f"is {drift.found}, must be {drift.wanted}", ""),
        )
    for warning in warnings:
        context.out.remark(warning)
    answer = ("not ok", "red") if drifts else ("ok", "green")
    context.out.line(answer, (f", {len(drifts)} differences" if drifts else "", ""))


@topics.command
def upgrade(
    *,
    registry: str | None = None,
    force: bool = False,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Put this foldline's rules of admission and event schemas in force.

    Writes a control record to every partition of appends, in one transaction. Upgrade
    every worker first: one that does not know the rules stops its partitions.

    Args:
        registry: The registry's Confluent API (env FOLDLINE_REGISTRY_URL).
        force: Write them even if they are in force already, for partitions that have
            been idle for a week: appends forgets what is older.
        context: Where to read and write.
    """
    from functools import partial  # late: see above
    from importlib.metadata import version

    from foldline.kafka import cluster_of
    from foldline.kafka_meta import put_in_force, read_meta
    from foldline.processors.admission import RULES_VERSION
    from foldline.processors.rules_lookup import rules_of_marks
    from foldline.schemas.topic_records import RulesInForce

    settings = context.settings_for(registry)
    cluster = cluster_of(settings)
    with context.registry(registry) as client:
        partitions = read_meta(cluster, settings, schemas=client).partitions
        rules = RulesInForce(
            rules_version=RULES_VERSION,
            schema_ids=client.event_ids(),
            partitions=partitions,
            written_by=f"foldline {version('foldline')}",
        )
        now, written = put_in_force(
            cluster,
            settings,
            rules,
            registry=client,
            force=force,
            before=partial(
                rules_of_marks, cluster, settings, registry=client, partitions=partitions
            ),
        )
    if context.out.json:
        view = {"rules_version": now.rules_version, "schema_ids": list(now.schema_ids)}
        context.out.record({**view, "written": written, "partitions": now.partitions})
        return OK
    what = f"rules version {now.rules_version}, {len(now.schema_ids)} event schemas"
    if written:
        context.out.line((f"{what}: in force", "green"))
    else:
        context.out.line((f"nothing to do: {what} are in force already", ""))
    return OK
