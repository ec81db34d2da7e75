"""Library and SQL objects of different versions: nothing crashes, nothing is lost, messages wait until both fit.

The other version is made of this one: its library differs in the number that
is compiled in, its SQL objects in the number of the extension.
"""

import os
import re
import shutil
import subprocess

import pytest

import processes
from checks import Ledger, await_until
from cluster import Cluster, bin_dir
from test_crash import Orders

THIS = re.search(rb'#define ACEMQ_VERSION\s+"(.*)"', open(  # noqa: SIM115
    os.path.join(os.path.dirname(__file__), "../../src/acemq.h"), "rb").read()).group(1).decode()
# As long as the present one, because it takes its place in the library.
OTHER = THIS[:-1] + ("9" if THIS[-1] != "9" else "8")


def pg_config(what):
    program = os.path.join(bin_dir(), "pg_config")
    return subprocess.run([program, what], check=True, capture_output=True, text=True).stdout.strip()


class Server:
    """A copy of the server's files, in which our own may be exchanged while it runs."""

    def __init__(self):
        self.prefix = processes.new_dir("tree")
        for what in ("--bindir", "--sharedir", "--pkglibdir"):
            source = pg_config(what)
            if not os.path.exists(self.prefix + source):
                shutil.copytree(source, self.prefix + source, symlinks=True,
                                ignore=shutil.ignore_patterns("bitcode", "locale", "man", "tsearch_data", "include"))
        self.bin = self.prefix + pg_config("--bindir")
        self.library = self.prefix + pg_config("--pkglibdir") + "/acemq.so"
        self.share = self.prefix + pg_config("--sharedir") + "/extension"
        shutil.copytree(pg_config("--sharedir") + "/tsearch_data",
                        self.prefix + pg_config("--sharedir") + "/tsearch_data", dirs_exist_ok=True)

    def install(self, version):
        """Library and control file of that version, and the way there, as `make install` does: never in place."""
        with open(pg_config("--pkglibdir") + "/acemq.so", "rb") as library:
            made = library.read().replace(THIS.encode(), version.encode())
        with open(self.library + ".new", "wb") as library:
            library.write(made)
        os.chmod(self.library + ".new", 0o755)
        os.rename(self.library + ".new", self.library)
        with open(f"{self.share}/acemq.control", "r+", encoding="utf-8") as control:
            text = re.sub("default_version *=.*", f"default_version = '{version}'", control.read())
            control.seek(0)
            control.truncate()
            control.write(text)
        for path in ((THIS, OTHER), (OTHER, THIS)):
            open(f"{self.share}/acemq--{path[0]}--{path[1]}.sql", "w", encoding="utf-8").close()


@pytest.fixture(scope="module")
def server():
    return Server()


@pytest.fixture
def shop(server, broker):
    """A database of a cluster of this version, that relays."""
    broker.ensure_running()
    server.install(THIS)
    cluster = Cluster()
    cluster.bin = server.bin
    with cluster:
        vhost = broker.vhost()
        secret = cluster.secret_file("broker-password", broker.password + "\n")
        with cluster.database("shop", {"acemq.url": vhost.url(), "acemq.password_file": secret}) as db:
            db.vhost = vhost
            vhost.declare("events", exchange="orders", binding="#")
            db.sql("CREATE TABLE public.orders (id text PRIMARY KEY)")
            db.await_state("idle")
            yield db


def versions(db):
    return re.fullmatch(r"library (\S+), SQL (\S+)", db.value("SELECT acemq.version()")).groups()


def check_waits(db, collector, ledger):
    """Adding goes on, nothing is sent, status and doctor say why."""
    db.await_state("needs restart")
    message_id = db.value("SELECT acemq.outbox_add('orders', 'k', '1')")
    ledger.commit(message_id)
    assert db.sql("SELECT ok FROM acemq.doctor() WHERE \"check\" = 'versions'") == [(False,)]
    pgcode = db.value("""
        CREATE OR REPLACE FUNCTION pg_temp.swept() RETURNS text LANGUAGE plpgsql AS
        $$BEGIN PERFORM acemq.outbox_sweep('1 s'); RETURN 'swept'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END$$;
        SELECT pg_temp.swept()""")
    assert pgcode == "AQ003"
    assert message_id not in collector.ids


def all_came(db, collector, ledger):
    ledger.committed |= {row[0] for row in db.sql("SELECT id FROM public.orders")}
    await_until(lambda: ledger.committed <= set(collector.ids), 60, "everything came")
    ledger.check(collector.ids, duplicates=1000)


def test_library_newer_than_the_sql(shop, server):
    """Files are replaced, the server restarted: messages wait until the extension is updated, which needs no restart."""
    ledger = Ledger()
    with shop.vhost.collect("events") as collector:
        producer = Orders(shop, ledger)
        producer.start()
        collector.wait(50, 20)
        server.install(OTHER)
        shop.cluster.stop("fast")
        producer.stop()
        shop.close()
        shop.cluster.start()
        assert versions(shop) == (OTHER, THIS)
        producer = Orders(shop, ledger)
        producer.start()
        check_waits(shop, collector, ledger)
        shop.sql("ALTER EXTENSION acemq UPDATE")
        shop.await_state("idle", "relaying")
        assert versions(shop) == (OTHER, OTHER)
        producer.stop()
        all_came(shop, collector, ledger)


def test_library_older_than_the_sql(shop, server):
    """Files are replaced under a running server and the extension updated: messages wait for its restart."""
    ledger = Ledger()
    with shop.vhost.collect("events") as collector:
        producer = Orders(shop, ledger)
        producer.start()
        collector.wait(50, 20)
        server.install(OTHER)
        shop.sql("ALTER EXTENSION acemq UPDATE")
        assert versions(shop) == (THIS, OTHER)
        check_waits(shop, collector, ledger)
        producer.stop()
        shop.close()
        mark = shop.cluster.log_mark()
        shop.cluster.restart()
        shop.await_state("idle", "relaying")
        assert versions(shop) == (OTHER, OTHER)
        assert "do not fit the library" not in shop.cluster.log_since(mark)
        all_came(shop, collector, ledger)
