"""The examples of the pages in docs/ run as they are written, one page after the other in a fresh database."""

import os
import pathlib
import re

import pytest

from processes import write_file

PAGES = sorted((pathlib.Path(__file__).parents[2] / "docs").glob("*.md"))


def examples(page):
    return re.findall(r"^```sql\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def test_there_are_pages():
    assert {"idempotency", "schema-registry", "claim-check", "partitioning", "scheduling"} <= {page.stem for page in PAGES}


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.stem)
def test_page(cluster, page):
    with cluster.database("docs_page") as database:
        script = write_file(os.path.join(cluster.directory, f"{page.stem}.sql"), "\n".join(examples(page)), cluster.user)
        cluster.run("psql", "-h", cluster.sockets, "-p", str(cluster.port), "-U", "postgres", "-d", database.name,
                    "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", script)
