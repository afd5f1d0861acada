"""Schemas that a worker does not have yet: asked for beside, and by then unknown."""

import json
from collections.abc import Generator

import pytest

from foldline.errors import RegistryUnavailableError
from foldline.processors.worker_schemas import FetchedSchemas
from foldline.schemas.registry_client import frozen_text
from tests.cluster.processes import wait_until
from tests.schemas.test_registry_client import Answers, answering, asking

ABSENT = b'{"error_code": 40403, "message": "no such schema"}'

UNKNOWN_AFTER_MS = 500


@pytest.fixture
def answers() -> Answers:
    return Answers(404, ABSENT)


@pytest.fixture
def schemas(answers: Answers) -> Generator[FetchedSchemas]:
    with answering(answers) as url, asking(url) as registry:
        made = FetchedSchemas(registry, unknown_after_ms=UNKNOWN_AFTER_MS)
        yield made
        made.close()


def becomes_unknown(schemas: FetchedSchemas, schema_id: int) -> bool:
    try:
        schemas.schema_of(schema_id)
    except RegistryUnavailableError:
        return False
    except KeyError:
        return True
    return False


def test_an_id_that_never_was_is_waited_for_only_for_a_while(
    schemas: FetchedSchemas,
) -> None:
    """Any writer can name one under the key of control records: no partition stops."""
    with pytest.raises(RegistryUnavailableError, match="not here yet"):
        schemas.schema_of(7)
    wait_until(lambda: becomes_unknown(schemas, 7), timeout_s=20, what=lambda: "an answer")


def test_an_id_that_was_unknown_is_found_once_the_registry_has_it(
    schemas: FetchedSchemas, answers: Answers
) -> None:
    wait_until(lambda: becomes_unknown(schemas, 7), timeout_s=20, what=lambda: "an answer")
    assert finds(schemas, answers)


def test_a_registry_in_trouble_makes_no_id_unknown(
    schemas: FetchedSchemas, answers: Answers
) -> None:
    """That there is none, said once, and then none at all, is no reason to give up."""
    answers.status, answers.body = 500, b'{"error_code": 50001, "message": "store"}'
    with pytest.raises(RegistryUnavailableError):
        schemas.schema_of(7)
    wait_until(lambda: len(answers.asked) > 3, timeout_s=20, what=lambda: "an answer")
    assert not becomes_unknown(schemas, 7)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b'{"error_code": 40101, "message": "who are you?"}'),
        (403, b'{"error_code": 40301, "message": "not yours"}'),
        (200, b"<html>log in first</html>"),
    ],
)
def test_a_registry_that_refused_for_a_while_is_asked_again(
    schemas: FetchedSchemas, answers: Answers, status: int, body: bytes
) -> None:
    answers.status, answers.body = status, body
    with pytest.raises(RegistryUnavailableError):
        schemas.schema_of(7)
    wait_until(lambda: len(answers.asked) > 1, timeout_s=20, what=lambda: "another request")
    assert finds(schemas, answers)


def finds(schemas: FetchedSchemas, answers: Answers) -> bool:
    """Whether a text is found once the registry has it."""
    text = frozen_text("LogMeta", 1)
    answers.status, answers.body = 200, json.dumps({"schema": text}).encode()

    def found() -> bool:
        try:
            return schemas.schema_of(7) == text
        except (KeyError, RegistryUnavailableError):
            return False

    wait_until(found, timeout_s=20, what=lambda: "the text")
    return True
