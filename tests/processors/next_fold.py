"""The `foldline` command of tomorrow: everything as today, but for the fold version.

    python -m tests.processors.next_fold prepare | worker ...

`prepare` does what a deployment does before it rolls the workers: schemas and topics.
"""

import sys

from foldline.schemas import state

state.FOLD_VERSION += 1  # before any module takes it from there


def prepare() -> None:
    """Register the schemas of the new topic, and make it."""
    from foldline import kafka, kafka_admin
    from foldline.schemas.registration import register
    from foldline.schemas.registry_client import registry_of
    from foldline.settings import Settings

    settings = Settings()
    register(registry_of(settings))
    kafka_admin.create_topics(
        kafka.cluster_of(settings), settings, partitions=settings.topic_partitions
    )


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare()
    else:
        from foldline.cli import main

        sys.exit(main())
