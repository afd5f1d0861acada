"""The committed reference pages say what the code does."""

from pathlib import Path

import pytest

from foldline.cli.reference import VERDICTS, main, pages
from foldline.schemas.events import EVENT_TYPES
from foldline.schemas.verdicts import VERDICT_KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_committed_page_is_the_one_that_the_code_makes(name: str) -> None:
    """Otherwise: `make docs`."""
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name]


def test_every_verdict_is_said_in_words() -> None:
    """And none that there is not; in the order in which admission looks for them."""
    assert tuple(VERDICTS) == VERDICT_KINDS


def test_every_type_is_on_the_pages_about_types(tmp_path: Path) -> None:
    """Also as `make docs` writes them."""
    main(tmp_path)
    for name in EVENT_TYPES.keys() - {"SessionCreated"}:
        for page in ("states.md", "authority.md", "schemas.md"):
            assert name in (tmp_path / page).read_text(encoding="utf-8")
