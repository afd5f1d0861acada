"""docs/http.md names every problem that the service's code can answer, and no other."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foldline.cli.reference_http import ANY, PROBLEMS, SESSION, described, http_page
from foldline.projections import service_problems, tokens

PROJECTIONS = Path(__file__).resolve().parents[2] / "projections"

OF_ERRORS = service_problems._STATUS  # pyright: ignore[reportPrivateUsage]
BY_STARLETTE = {(404, "not_found"), (405, "method_not_allowed")}
BY_DEFAULT = {(500, "log_failed")}
AGAIN_BY_ERROR = {"log_unavailable", "no_rules", "registry_unavailable", "uncertain"}
"""Errors of foldline that say themselves that they may be tried again."""


def raised() -> Iterator[tuple[int, str, bool]]:
    """Status, kind and whether it says when to ask again, of each problem in the code."""
    for path in sorted(PROJECTIONS.glob("service_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="Problem"),
                    args=[
                        ast.Constant(value=int(status)),
                        ast.Constant(value=str(kind)),
                        *_,
                    ],
                ):
                    again = any(word.arg == "retry_after_s" for word in node.keywords)
                    yield status, kind, again
                case _:
                    pass


def operations() -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation
        for methods in described()["paths"].values()
        for operation in methods.values()
    }


def test_every_problem_that_the_code_can_answer_has_a_row_and_no_other_has() -> None:
    of_errors = {(status, kind) for _, status, kind in OF_ERRORS}
    found = {(status, kind) for status, kind, _ in raised()}
    assert len(found) > 30
    rows = [(told.status, told.kind) for told in PROBLEMS]
    assert sorted(rows) == sorted(found | of_errors | BY_STARLETTE | BY_DEFAULT)


def test_a_row_says_again_where_the_answer_says_when() -> None:
    again = {kind for _, kind, again in raised() if again} | AGAIN_BY_ERROR
    assert {told.kind for told in PROBLEMS if told.again} == again


def test_what_is_retryable_of_foldlines_errors_is_so_in_the_rows() -> None:
    retryable = {k for error, _, k in OF_ERRORS if error.retryable}
    assert retryable == AGAIN_BY_ERROR


def test_every_route_that_a_row_names_exists() -> None:
    known = operations().keys()
    for told in PROBLEMS:
        if isinstance(told.where, str):
            assert told.where in (ANY, SESSION)
        else:
            assert told.where
            assert set(told.where) <= known, told


def test_every_route_and_every_scope_is_on_the_page() -> None:
    page = http_page()
    for path, methods in described()["paths"].items():
        for method in methods:
            short = path.removeprefix("/foldline/v1")
            assert f"| `{method.upper()} {short}` |" in page
    assert all(f"| `{scope}` |" in page for scope in tokens.SCOPES)
