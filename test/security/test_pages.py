"""docs/security.md and docs/reliability.md name the tests that hold their statements: they are there."""

import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("page, directory", [("security", "security"), ("reliability", "broker")])
def test_the_tests_it_names(page, directory):
    text = (TOP / f"docs/{page}.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:test/\w+/)?\w+\.(?:py|sql))(?:::(\w+))?`", text)
    assert len(named) > 20
    for file, function in named:
        path = TOP / (file if file.startswith("test/") else f"test/{directory}/{file}")
        assert path.exists(), file
        assert not function or f"def {function}(" in path.read_text(encoding="utf-8"), f"{file}::{function}"


def test_every_file_of_this_tier_is_named():
    page = (TOP / "docs/security.md").read_text(encoding="utf-8")
    for path in pathlib.Path(__file__).parent.glob("test_*.py"):
        assert path.name in page or path.name == "test_pages.py", path.name
