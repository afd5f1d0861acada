"""Small files that say how far a reader came."""

from pathlib import Path

from foldline.projections.positions_file import path_in


def test_a_reader_finds_the_file_of_the_version_before(tmp_path: Path) -> None:
    """Another name would have everything sent and judged once more."""
    assert path_in(tmp_path, "sqlite:///s.db", "http://to", "1", "True") == (
        tmp_path / "8d6255ce193644a8175b3265da085493.db"
    )


def test_each_log_and_each_way_to_read_it_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Two readers never go on from where the other one is."""
    readers = [("a", "b"), ("a", "c"), ("b", "b"), ("a",), ("\ud800",)]
    assert len({path_in(tmp_path, *reader) for reader in readers}) == len(readers)
