"""The pages of the documentation, and what can be taken out of them.

May depend on: nothing of ours.
"""

import collections
import pathlib
import re

TOP = pathlib.Path(__file__).parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md")), *sorted(TOP.glob("*/README.md"))]

# info: what is behind the opening fence; line: number of the first line of text.
Block = collections.namedtuple("Block", "info line lines end")


def name_of(page):
    return str(page.relative_to(TOP))


def text_of(page):
    return page.read_text(encoding="utf-8")


def blocks(page):
    """The fenced blocks, in order.  end: number of the line with the closing fence."""
    found = []
    opened = None
    for number, line in enumerate(text_of(page).splitlines(), start=1):
        fence = re.match(r"\s*```\s*(.*?)\s*$", line)
        if fence is None:
            if opened:
                opened.lines.append(line)
        elif opened:
            found.append(opened._replace(end=number))
            opened = None
        else:
            opened = Block(fence.group(1), number + 1, [], None)
    assert opened is None, f"{name_of(page)}: the block of line {opened.line} is not closed"
    return found


def is_run(block):
    return block.info == "sql"


def prose(page):
    """The page without its blocks."""
    return re.sub(r"^\s*```.*?^\s*```[^\n]*$", "", text_of(page), flags=re.M | re.S)
