"""The pages say what there is: the README's reference, links, messages, names in the code."""

import os
import pathlib
import re
import subprocess

import pytest

from messages import VARIES, checks_of_the_doctor, errors_of, messages
from pages import PAGES, TOP, blocks, name_of, prose, text_of

README = TOP / "README.md"
TROUBLESHOOTING = TOP / "docs" / "troubleshooting.md"


# ---- the reference of the README, compared with the server ----


@pytest.fixture(scope="module")
def database(cluster):
    with cluster.database("docs_reference") as fresh:
        yield fresh


def section(title):
    """Of the README, without its sections of the same level."""
    found = re.search(rf"^### {title}\n(.*?)(?=^##)", text_of(README), re.M | re.S)
    assert found, f"README has no section {title}"
    return found.group(1)


def first_cells(title):
    return re.findall(r"^\| (`[^|]*) \|", section(title), re.M)


# What a duty is for in the README, by function of the server.
DUTIES = """
    SELECT name, string_agg(duty, ', ' ORDER BY place) FROM (
    SELECT DISTINCT p.proname AS name, d.duty, d.place
    FROM (VALUES ('producer', 1), ('stores', 2), ('operator', 3)) d (duty, place), pg_proc p
    WHERE p.pronamespace = 'acemq'::regnamespace AND has_function_privilege('docs_' || d.duty, p.oid, 'EXECUTE')) AS rights GROUP BY 1"""


def described_functions():
    """(name, arguments, duty) of each row."""
    rows = re.findall(r"^\| `(\w+)\(([^`]*)\)` \|.*\| ([^|]*) \|$", section("Functions"), re.M)
    assert len(rows) > 40
    return rows


def test_every_function_is_described(database):
    described = {name for name, _, _ in described_functions()}
    there = {name for (name,) in database.sql("SELECT proname FROM pg_proc WHERE pronamespace = 'acemq'::regnamespace")}
    assert described == there


def test_arguments(database):
    """Names and order; the publishing functions leave out their common options."""
    there = dict(database.sql("SELECT proname, string_agg(COALESCE(array_to_string(proargnames[:pronargs], ','), ''), ' ')"
                              " FROM pg_proc WHERE pronamespace = 'acemq'::regnamespace GROUP BY 1"))
    for name, arguments, _ in described_functions():
        if "<options>" in arguments or "..." in arguments:
            continue
        assert ",".join(argument.split()[0] for argument in arguments.split(", ") if argument) == there[name], name


def test_options_of_the_publishing_functions(database):
    page = re.findall(r"^\| `(\w+) [\w ]+` \|", text_of(TOP / "docs/outbox.md"), re.M)
    there = database.sql("SELECT DISTINCT proargnames[4:] FROM pg_proc WHERE oid::regproc::text = 'acemq.outbox_add'")
    assert [tuple(page)] == [tuple(names) for (names,) in there]


def test_duties(database):
    for duty in ("producer", "stores", "operator"):
        database.sql(f"CREATE ROLE docs_{duty}")
        database.sql("SELECT acemq.grant_access(%s, %s)", (f"docs_{duty}", duty))
    try:
        there = dict(database.sql(DUTIES))
        for name, _, duty in described_functions():
            assert duty == there.get(name, "owner"), name
    finally:
        for duty in ("producer", "stores", "operator"):
            database.sql(f"DROP OWNED BY docs_{duty}")
            database.sql(f"DROP ROLE docs_{duty}")


def test_every_setting_is_described(database):
    described = re.findall(r"^\| `(acemq\.\w+)`", text_of(README), re.M)
    # The URL is listed for nobody.
    there = [name for (name,) in database.sql("SELECT name FROM pg_settings WHERE name LIKE 'acemq.%'")] + ["acemq.url"]
    assert sorted(described) == sorted(set(there))


def test_every_relation_and_type_is_described(database):
    described = {cell.strip("`") for cell in first_cells("Views and tables")}
    there = {name for (name,) in database.sql(
        "SELECT relname FROM pg_class WHERE relnamespace = 'acemq'::regnamespace AND relkind IN ('r', 'v', 'm', 'p') UNION"
        " SELECT typname FROM pg_type WHERE typnamespace = 'acemq'::regnamespace AND typtype IN ('e', 'd')")}
    assert described == there


@pytest.mark.parametrize("view", ["outbox_pending", "outbox_retired", "status"])
def test_columns_of_the_views(database, view):
    there = {name for (name,) in database.sql("SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0",
                                              (f"acemq.{view}",))}
    described = set(re.findall(r"\w+", section("Status" if view == "status" else "Views and tables")))
    assert there <= described, there - described


def test_every_metric_is_described(database):
    """Behind a whole name, `.p95` is the name of the same family that ends so."""
    page = text_of(TOP / "docs/operating.md")
    described = set()
    for cell in re.findall(r"^\| (`acemq\.\w+\.[^|]*) \|", page, re.M):
        prefix = None
        for name in re.findall(r"`([\w.]+)`", cell):
            prefix = prefix or re.match(r"acemq\.\w+(\.lag)?", name).group(0)
            described.add(prefix + name if name.startswith(".") else name)
    there = {name for (name,) in database.sql("SELECT name FROM acemq.metrics")}
    assert len(there) > 15 and there <= described, there - described
    # Some have a row only when there is something to tell.
    assert set(re.findall(r'"(acemq\.[\w.]+)"', text_of(TOP / "src/metrics.c"))) == described


def test_columns_of_the_outbox(database):
    protocol = text_of(TOP / "docs/protocol.md")
    part = protocol[protocol.index("## 2.1 "):protocol.index("## 2.2 ")]
    described = {name for cell in re.findall(r"^\| (`[^|]*) \|", part, re.M) for name in re.findall(r"`(\w+)`", cell)}
    there = {name for (name,) in database.sql("SELECT attname FROM pg_attribute WHERE attrelid = 'acemq.outbox'::regclass AND attnum > 0")}
    assert there == described


def test_every_sqlstate_of_ours_is_described():
    used = set(re.findall(r"MAKE_SQLSTATE\('A', 'Q', '0', '0', '(\d)'\)", text_of(TOP / "src/acemq.h")))
    assert used
    assert {f"AQ00{digit}" for digit in used} <= set(re.findall(r"AQ\d{3}", section("SQLSTATEs")))


def server_headers():
    pg_config = os.environ.get("PG_CONFIG", "pg_config")
    return subprocess.run([pg_config, "--includedir-server"], check=True, capture_output=True, text=True).stdout.strip()


def sqlstates():
    """What the names of SQLSTATEs stand for, as the server's headers say."""
    header = pathlib.Path(server_headers()) / "utils" / "errcodes.h"
    found = re.findall(r"#define (ERRCODE_\w+)\s+MAKE_SQLSTATE\((.*?)\)", header.read_text(encoding="ascii"))
    return {name: "".join(re.findall(r"'(.)'", code)) for name, code in found}


def test_every_sqlstate_that_is_used_is_described():
    names = sqlstates()
    assert len(names) > 100
    described = set(re.findall(r"`(\w{5})`", section("SQLSTATEs")))
    for path in TOP.glob("src/**/*.c"):
        for name in re.findall(r"errcode\((ERRCODE_\w+)\)", text_of(path)):
            assert names.get(name, "AQ001") in described, f"{path.name}: {name} is {names[name]}"


# ---- messages ----


def test_every_message_is_in_troubleshooting():
    """`...` in the page stands for what varies, and so may what it varies to."""
    spans = re.findall(r"`([^`\n]+)`", prose(TROUBLESHOOTING))
    missing = []
    for message, file in messages():
        pattern = ".*".join(re.escape(piece) for piece in message.split(VARIES))
        if not any(re.fullmatch(pattern + "(: .*)?", span) for span in spans):
            missing.append(f"{file}: {message}")
    assert not missing, "\n".join(["not in docs/troubleshooting.md:", *missing])


def test_errors_about_arguments_say_what_to_do():
    """A NULL needs no more words, as in PostgreSQL's own errors."""
    names = sqlstates()
    bare = []
    for path in TOP.glob("src/**/*.c"):
        for error in errors_of(path):
            state = names.get((re.findall(r"ERRCODE_\w+", error) or [""])[0], "")
            if state.startswith("22") and state != "22004" and not re.search(r"errhint|errdetail", error):
                bare.append(f"{path.name}: {' '.join(error.split())}")
    assert not bare, "\n".join(bare)


def test_every_check_of_the_doctor_is_in_troubleshooting(database):
    described = re.search(r"^## The doctor's findings\n(.*?)^## ", text_of(TROUBLESHOOTING), re.M | re.S).group(1)
    listed = set(re.findall(r"^\| `([^`]+)` \|", described, re.M))
    there = {name for (name,) in database.sql('SELECT "check" FROM acemq.doctor()')}
    assert there | checks_of_the_doctor() == listed


# ---- links ----


def anchor(heading):
    text = re.sub(r"[`*]", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page):
    return {anchor(heading) for heading in re.findall(r"^#{1,6} (.*)$", prose(page), re.M)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links(page):
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, place = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        if not other.exists() or (place and place not in anchors(other)):
            wrong.append(target)
    assert not wrong


@pytest.mark.parametrize("page", sorted((TOP / "docs").glob("*.md")), ids=name_of)
def test_every_page_is_linked_from_the_readme(page):
    assert f"](docs/{page.name}" in text_of(README)


# ---- names in the code ----


@pytest.mark.parametrize("page", [TOP / "docs/code.md", TOP / "bgworker/README.md"], ids=name_of)
def test_files_and_functions_that_it_names(page):
    """A path is there; a function is in one of the files that its line names."""
    for line in prose(page).splitlines():
        named = [path for path in re.findall(r"`((?:[\w.]+/)*[\w.]+\.(?:c|h|sql|py|md))`", line)]
        paths = [next((top / path for top in (TOP, page.parent, TOP / "src", TOP / "src/amqp", TOP / "bgworker") if (top / path).exists()), None)
                 for path in named]
        assert None not in paths, f"{named}: {line}"
        for function in re.findall(r"`(\w+)\(\)`", line):
            defined = rf"^{function}\(|FUNCTION acemq\.{function}\(|\b(?:acemq_)?{function}\(PG_FUNCTION_ARGS\)"
            assert any(re.search(defined, text_of(path), re.M) for path in paths) or not paths, f"{function}: {line}"


def test_every_file_is_named():
    """So that a new one gets its line in the page for the newcomer."""
    described = text_of(TOP / "docs/code.md") + text_of(TOP / "bgworker/README.md")
    files = [path.name for directory in ("src", "src/amqp", "bgworker") for path in TOP.glob(f"{directory}/*.c")]
    assert [name for name in sorted(files) if not re.search(rf"\b{re.escape(name)}", described)] == []


def test_blocks_are_closed():
    assert all(blocks(page) is not None for page in PAGES)
