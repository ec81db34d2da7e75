"""G9: amqps verifies the chain and the host name of the broker's certificate."""

import os
import subprocess

import pytest

import processes
from checks import await_until
from rabbit import Broker


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def make_certificates(directory):
    """An authority of our own, and a certificate of `localhost` (the name only, not the address) signed by it."""
    path = lambda name: os.path.join(directory, name)  # noqa: E731
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test authority",
            "-keyout", path("ca.key"), "-out", path("ca.pem"))
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
            "-keyout", path("broker.key"), "-out", path("broker.csr"))
    with open(path("names"), "w", encoding="ascii") as names:
        names.write("subjectAltName = DNS:localhost\n")
    openssl("x509", "-req", "-days", "1", "-in", path("broker.csr"), "-CA", path("ca.pem"), "-CAkey", path("ca.key"),
            "-CAcreateserial", "-extfile", path("names"), "-out", path("broker.pem"))
    for name in os.listdir(directory):
        os.chmod(path(name), 0o644)


@pytest.fixture(scope="module")
def tls_broker():
    with Broker() as broker:
        directory = processes.make_dir(os.path.join(broker.directory, "tls"), broker.user, 0o755)
        os.chmod(broker.directory, 0o755)
        make_certificates(directory)
        broker.config.update({
            "listeners.ssl.local": f"127.0.0.1:{broker.tls_port}",
            "ssl_options.cacertfile": f"{directory}/ca.pem",
            "ssl_options.certfile": f"{directory}/broker.pem",
            "ssl_options.keyfile": f"{directory}/broker.key",
        })
        broker.restart()
        broker.ca_file = f"{directory}/ca.pem"
        yield broker


@pytest.fixture
def relay(cluster, tls_broker):
    """Function: a database whose worker connects with amqps to that host, with these settings."""
    made = []

    def make(host, **settings):
        vhost = tls_broker.vhost()
        values = {"acemq.url": vhost.url(scheme="amqps", host=host, port=tls_broker.tls_port),
                  "acemq.password_file": cluster.secret_file("tls-password", tls_broker.password + "\n")}
        values.update({f"acemq.{name}": value for name, value in settings.items()})
        context = cluster.database(f"tls{len(made)}", values)
        db = context.__enter__()
        made.append(context)
        db.vhost = vhost
        return db

    yield make
    for context in made:
        context.__exit__(None, None, None)


def test_right_certificate(relay, tls_broker):
    db = relay("localhost", tls_ca_file=tls_broker.ca_file)
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
    assert db.vhost.get(queue).body == b"1"
    assert db.status()["broker"].startswith("amqps://localhost:")
    # Longer than one TLS record and one frame.
    db.sql("SELECT acemq.outbox_add('orders', 'k', convert_to(repeat('x', 1000000), 'UTF8'))")
    assert db.vhost.get(queue, 20).body == b"x" * 1000000


@pytest.mark.parametrize("host, with_ca, words", [
    pytest.param("localhost", False, ("certificate", "authority"), id="authority not known"),
    pytest.param("127.0.0.1", True, ("name", "address"), id="another host's certificate"),
])
def test_refused(relay, tls_broker, host, with_ca, words):
    db = relay(host, **({"tls_ca_file": tls_broker.ca_file} if with_ca else {}))
    db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
    await_until(lambda: db.status()["last_error"], 15, "the worker says why it is not connected")
    assert db.status()["state"] == "disconnected"
    assert any(word in db.status()["last_error"] for word in words), db.status()["last_error"]
    assert tls_broker.password not in str(db.status())


def test_verification_loosened(relay, tls_broker):
    """`ca` leaves out the name, `none` everything, with a warning at the start."""
    db = relay("127.0.0.1", tls_ca_file=tls_broker.ca_file, tls_verify="ca")
    db.await_state("idle")
    start = db.cluster.log_mark()
    db = relay("127.0.0.1", tls_verify="none")
    db.await_state("idle")
    assert "is not verified" in db.cluster.log_since(start)
