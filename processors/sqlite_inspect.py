"""What is wrong with a SQLite log below its sessions: pages, rows of nobody, schemas."""

from collections.abc import Iterator

from foldline.processors.sqlite_read import Readers
from foldline.processors.sqlite_write import SqliteSchemas
from foldline.processors.stored import Problem, changed_schemas

_OF_NOBODY = {
    "events": "SELECT count(*) FROM events "
    "WHERE position >> 32 NOT IN (SELECT key FROM sessions)",
    "snapshots": "SELECT count(*) FROM snapshots "
    "WHERE position >> 32 NOT IN (SELECT key FROM sessions)",
}


def problems_below(readers: Readers, schemas: SqliteSchemas) -> Iterator[Problem]:
    """Everything found; none of it belongs to a session."""
    with readers.lend() as reader:
        for (line,) in reader.execute("PRAGMA quick_check").fetchall():
            if line != "ok":
                yield Problem("", 0, str(line))
        for table, count_of in _OF_NOBODY.items():
            (count,) = reader.execute(count_of).fetchone()
            if count:
                yield Problem("", 0, f"{count} {table} of no session")
    yield from changed_schemas(schemas.rows())
