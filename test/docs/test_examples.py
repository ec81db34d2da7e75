"""The examples of the documentation run as they are written.

The SQL blocks of a page run in order, in one session, in a fresh database that relays to a real broker; a block that
creates the extension comes first. Where plain output follows a block, it is what the block has to print. A block
that is not run says so: ```sql not-run.
"""

import contextlib
import os
import re

import pytest

from checks import await_until
from pages import PAGES, blocks, is_run, name_of
from processes import write_file

EXCHANGES = ("orders", "shop", "mail", "reports")

# What is there before a page begins.
BEFORE = {
    "README.md": "CREATE TABLE orders (id int, customer text, total numeric);"
                 " CREATE ROLE shop_app; CREATE ROLE shop_ops; CREATE ROLE shop_lib;",
}

# Tables of the AceMQ libraries, each with a message that has been sent, one that is retired, and one that waits.
HEADERS = ('{"x-acemq-id": "%s", "x-acemq-type": "order.placed", "x-acemq-version": 2, "x-acemq-correlation": "c-1",'
           ' "x-acemq-attempt": 1, "x-acemq-first-seen": 1764468000123, "x-tenant": "acme", "x-items": 3}')
BEFORE["docs/migrating.md"] = """
    CREATE TABLE ruby_outbox (id varchar(64) PRIMARY KEY, exchange_name varchar(255) NOT NULL, routing_key varchar(255) NOT NULL,
        body text NOT NULL, body_encoding varchar(16) NOT NULL, content_type varchar(255) NOT NULL, headers text NOT NULL,
        created_at timestamptz NOT NULL, published_at timestamptz, attempts integer NOT NULL DEFAULT 0, last_error varchar(1000),
        locked_by varchar(64), locked_until timestamptz);
    CREATE TABLE java_outbox (id varchar(64) PRIMARY KEY, exchange_name varchar(255) NOT NULL, routing_key varchar(255) NOT NULL,
        message_type varchar(255) NOT NULL, payload text NOT NULL, correlation_id varchar(64), causation_id varchar(64),
        created_at timestamptz NOT NULL, published_at timestamptz, attempts integer NOT NULL DEFAULT 0, last_error varchar(1000),
        locked_by varchar(64), locked_until timestamptz);
    CREATE TABLE dotnet_outbox (id varchar(64) PRIMARY KEY, exchange varchar(255) NOT NULL, routing_key varchar(255) NOT NULL,
        type varchar(255) NOT NULL, payload text NOT NULL, correlation_id varchar(64), causation_id varchar(64),
        created_at timestamp NOT NULL, published integer NOT NULL, attempts integer NOT NULL, last_error text, leased_until timestamp);
    CREATE TABLE python_outbox (id varchar(64) PRIMARY KEY, exchange_name varchar(255) NOT NULL, routing_key varchar(255) NOT NULL,
        body bytea NOT NULL, content_type varchar(255) NOT NULL, headers text NOT NULL, created_at bigint NOT NULL,
        attempts integer NOT NULL DEFAULT 0, last_error text);
    CREATE TABLE go_outbox (id varchar(255) PRIMARY KEY, exchange varchar(255) NOT NULL, routing_key varchar(255) NOT NULL,
        body bytea NOT NULL, content_type varchar(255) NOT NULL, headers text NOT NULL, created_at timestamp NOT NULL,
        attempts integer NOT NULL DEFAULT 0, last_error text);
    INSERT INTO ruby_outbox SELECT 'ruby-' || n, 'orders', 'k', CASE n WHEN 3 THEN 'rAEC' ELSE '{"n": 1}' END,
        CASE n WHEN 3 THEN 'base64' ELSE 'utf-8' END, CASE n WHEN 3 THEN 'application/octet-stream' ELSE 'application/json' END,
        format(HEADERS, 'ruby-' || n), now() + n * interval '1 s', CASE n WHEN 1 THEN now() END, CASE n WHEN 2 THEN 10 ELSE 0 END,
        NULL, 'somebody', now() - interval '1 min' FROM generate_series(1, 3) n;
    INSERT INTO java_outbox SELECT 'java-' || n, 'orders', 'k', 'order.placed', '{"n": 1}', 'c-1', 'a-1', now() + n * interval '1 s',
        CASE n WHEN 1 THEN now() END, CASE n WHEN 2 THEN 10 ELSE 0 END FROM generate_series(1, 3) n;
    INSERT INTO dotnet_outbox SELECT 'dotnet-' || n, 'orders', 'k', 'order.placed', '{"n": 1}', 'c-1', NULL, now() + n * interval '1 s',
        CASE n WHEN 1 THEN 1 ELSE 0 END, CASE n WHEN 2 THEN 10 ELSE 0 END FROM generate_series(1, 3) n;
    INSERT INTO python_outbox SELECT 'python-' || n, 'orders', 'k', '{"n": 1}', 'application/json', format(HEADERS, 'python-' || n),
        1764468000000 + n FROM generate_series(2, 3) n;
    INSERT INTO go_outbox SELECT 'go-' || n, 'orders', 'k', '{"n": 1}', 'application/json', format(HEADERS, 'go-' || n),
        now() + n * interval '1 s' FROM generate_series(2, 3) n;
""".replace("HEADERS", "'" + HEADERS + "'")


def check_moved(vhost):
    """What was waiting or retired in the tables of the libraries has come, in order, as the library would have sent it."""
    messages = [message for message in vhost.drain("all-orders") if message.routing_key == "k"]
    languages = ("ruby", "java", "dotnet", "python", "go")
    assert [m.properties.message_id for m in messages] == [f"{language}-{n}" for language in languages for n in (2, 3)]
    for message in messages:
        assert message.headers["x-acemq-type"] == "order.placed" and message.headers["x-acemq-correlation"] == "c-1"
        binary = message.properties.message_id == "ruby-3"
        assert message.body == (b"\xac\x01\x02" if binary else b'{"n": 1}')
        assert message.properties.content_type == ("application/octet-stream" if binary else "application/json")
        if "x-tenant" in message.headers:
            assert (message.headers["x-tenant"], message.headers["x-items"], message.headers["x-acemq-version"]) == ("acme", 3, 2)
    assert sum("x-tenant" in message.headers for message in messages) == 6
    assert [m.headers.get("x-acemq-causation") for m in messages[2:4]] == ["a-1", "a-1"]


UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def pages_with(kind):
    return [page for page in PAGES if any(kind(block) for block in blocks(page))]


def creates_extension(block):
    return any(line.startswith("CREATE EXTENSION acemq") for line in block.lines)


def script(chosen, stand_ins):
    """Each line at its number in the page, so that psql's errors name it; what a block prints ends with a line of ours."""
    lines = []
    for block in chosen:
        lines += [""] * (block.line - 1 - len(lines)) + block.lines + [f"\\echo @@ {block.line}"]
    text = "\n".join(lines) + "\n"
    for written, real in stand_ins.items():
        text = text.replace(written, real)
    return text


def comparable(lines):
    """Without what differs from run to run, and without the count of rows, which the pages leave out."""
    kept = [UUID.sub("UUID", line.rstrip()) for line in lines]
    return [line for line in kept if line and not re.fullmatch(r"\(\d+ rows?\)", line)]


def check_output(page, output):
    printed = {}
    begun = 0
    lines = output.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("@@ "):
            printed[int(line[3:])] = lines[begun:number]
            begun = number + 1
    found = blocks(page)
    for block, following in zip(found, found[1:]):
        if is_run(block) and following.info == "" and following.line == block.end + 2:
            said = comparable(printed[block.line])
            expected = comparable(following.lines)
            assert said[-len(expected):] == expected, f"{name_of(page)}, line {following.line}: {said}"


@contextlib.contextmanager
def left_as_it_was(cluster):
    """What a page has set for the whole server, and the roles that it has made, are nobody else's business."""
    roles = {name for (name,) in cluster.sql("SELECT rolname FROM pg_roles")}
    try:
        yield
    finally:
        cluster.sql("ALTER SYSTEM RESET ALL")
        cluster.sql("SELECT pg_reload_conf()")
        for (name,) in cluster.sql("SELECT rolname FROM pg_roles"):
            if name not in roles:
                cluster.sql(f'DROP ROLE "{name}"')


@pytest.fixture(scope="module")
def virtual_host(broker):
    """What the examples send to: exchanges with a queue for all, and queues."""
    vhost = broker.vhost()
    with vhost.channel() as channel:
        for exchange in EXCHANGES:
            channel.exchange_declare(exchange, "topic", durable=True)
            channel.queue_declare(f"all-{exchange}", durable=True)
            channel.queue_bind(f"all-{exchange}", exchange, "#")
        for queue in ("inbox", "sales"):
            channel.queue_declare(queue, durable=True)
    return vhost


def run_page(page, database, vhost, settings):
    """Its blocks through psql; what they print."""
    cluster = database.cluster
    stand_ins = {"amqp://guest:guest@localhost": vhost.url(password=vhost.broker.password),
                 "amqp://shop@broker.example/shop": vhost.url(),
                 "/etc/postgresql/acemq.password": settings["acemq.password_file"]}
    found = [block for block in blocks(page) if is_run(block)]
    files = []
    for chosen in ([b for b in found if creates_extension(b)], [b for b in found if not creates_extension(b)]):
        directory = os.path.join(cluster.directory, f"docs{len(files)}")
        os.makedirs(directory, exist_ok=True)
        files += ["-f", write_file(os.path.join(directory, page.name), script(chosen, stand_ins), cluster.user)]
    return cluster.run("psql", "-h", cluster.sockets, "-p", str(cluster.port), "-U", "postgres", "-d", database.name,
                       "-X", "-q", "-v", "ON_ERROR_STOP=1", *files)


@pytest.fixture
def settings(relay_settings, virtual_host):
    return relay_settings(virtual_host)


def check_sent(database):
    """No message that a reader is told to add is refused by the broker."""
    if database.value("SELECT to_regclass('acemq.outbox')") is None:
        return  # The page ends with DROP EXTENSION.
    await_until(lambda: database.value("SELECT count(*) FROM acemq.outbox_pending WHERE not_before IS NULL") == 0, 20,
                lambda: f"all is sent: {database.sql('SELECT * FROM acemq.outbox_pending')}; {database.status()}")
    assert database.value("SELECT count(*) FROM acemq.outbox WHERE attempts > 0") == 0


@pytest.mark.parametrize("page", pages_with(is_run), ids=name_of)
def test_page(cluster, virtual_host, settings, page):
    makes_it = any(creates_extension(block) for block in blocks(page))
    with left_as_it_was(cluster):
        with cluster.database("docs_page", {} if makes_it else settings,
                              () if makes_it else ("acemq",)) as database:
            if name_of(page) in BEFORE:
                database.sql(BEFORE[name_of(page)])
            check_output(page, run_page(page, database, virtual_host, settings))
            if name_of(page) == "docs/migrating.md":
                check_moved(virtual_host)
            if name_of(page) == "README.md":
                (message,) = virtual_host.drain("inbox", 1)
                assert message.body == b'{"hello": "queue"}'
            check_sent(database)


@pytest.mark.parametrize("page", pages_with(lambda block: block.info == "python"), ids=name_of)
def test_python_compiles(page):
    for block in blocks(page):
        if block.info == "python":
            compile("\n" * (block.line - 1) + "\n".join(block.lines), name_of(page), "exec")


def test_what_is_not_run():
    """No SQL hides behind another word, and little is left out."""
    left_out = []
    for page in PAGES:
        for block in blocks(page):
            if not is_run(block) and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|BEGIN|WITH)\b", "\n".join(block.lines)):
                assert block.info == "sql not-run", f"{name_of(page)}, line {block.line}"
                left_out.append((name_of(page), block.line))
    assert len(left_out) <= 6, left_out
