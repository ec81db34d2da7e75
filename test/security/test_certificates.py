"""G9: each certificate that is not to be trusted is refused in words that name the reason; clients' certificates; consuming over TLS."""

import contextlib
import os
import socket
import ssl
import subprocess
import threading

import pytest

import ladder
import processes
from checks import await_until
from rabbit import Broker

LONG_AGO, PAST, NOW, FUTURE, FAR = "20200101000000Z", "20200201000000Z", "20240101000000Z", "20990101000000Z", "20991231000000Z"


def openssl(*arguments, cwd=None):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=cwd)


class Authority:
    """Signs what it is asked to, with any dates."""

    def __init__(self, directory, name):
        self.directory = directory
        self.name = name
        self.certificate = self.path(f"{name}.pem")
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", f"/CN={name}",
                "-keyout", self.path(f"{name}.key"), "-out", self.certificate)
        processes.write_file(self.path(f"{name}.index"), "")
        processes.write_file(self.path(f"{name}.conf"), f"""
[ca]
default_ca = own
[own]
database = {self.path(name)}.index
new_certs_dir = {directory}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
""")

    def path(self, name):
        return os.path.join(self.directory, name)

    def sign(self, name, subject="localhost", starts=NOW, ends=FAR, names="DNS:localhost", usage="serverAuth"):
        """(certificate, key), readable by anybody: nothing of it is secret here."""
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={subject}", "-addext", f"subjectAltName={names}",
                "-addext", f"extendedKeyUsage={usage}", "-keyout", self.path(f"{name}.key"), "-out", self.path(f"{name}.csr"))
        openssl("ca", "-batch", "-config", self.path(f"{self.name}.conf"), "-cert", self.certificate,
                "-keyfile", self.path(f"{self.name}.key"), "-startdate", starts, "-enddate", ends,
                "-in", self.path(f"{name}.csr"), "-out", self.path(f"{name}.pem"), "-notext")
        for file in (f"{name}.key", f"{name}.pem"):
            os.chmod(self.path(file), 0o644)
        return self.path(f"{name}.pem"), self.path(f"{name}.key")


@pytest.fixture(scope="module")
def directory():
    return processes.new_dir("certificates")


@pytest.fixture(scope="module")
def authority(directory):
    return Authority(directory, "ours")


@pytest.fixture(scope="module")
def stranger(directory):
    return Authority(directory, "theirs")


@contextlib.contextmanager
def presenting(certificate, key, chain=None):
    """A server that shows this certificate to whoever comes; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if chain is not None:
        with open(certificate, encoding="ascii") as own, open(chain, encoding="ascii") as signer:
            certificate = processes.write_file(certificate + ".chain", own.read() + signer.read())
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopping = threading.Event()

        def serve():
            while not stopping.is_set():
                with contextlib.suppress(OSError):
                    client = listener.accept()[0]
                    client.settimeout(5)
                    with contextlib.suppress(OSError), context.wrap_socket(client, server_side=True) as stream:
                        stream.recv(8)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stopping.set()
            with contextlib.suppress(OSError):
                socket.create_connection(listener.getsockname()).close()
            thread.join(10)


@pytest.fixture(scope="module")
def shop(cluster):
    cluster.ensure_running()
    with cluster.database("certificates") as db:
        yield db


def said_with(db, **settings):
    """What the worker says why it is not connected, with these settings."""
    for name, value in settings.items():
        db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.{name} = '{value}'")
    db.sql("SELECT acemq.worker_restart()")
    mark = db.cluster.log_mark()
    return lambda: (db.status()["last_error"] or "", db.cluster.log_since(mark))


# What is presented, whom we trust, the host in the URL, and the words that say why not.
REFUSED = {
    "another host name": (lambda a, s: a.sign("other", "elsewhere", names="DNS:elsewhere"), "ours", "localhost",
                          "it is for another host name"),
    "another address": (lambda a, s: a.sign("address", names="IP:127.0.0.2"), "ours", "127.0.0.1", "it is for another address"),
    "name in the subject only": (lambda a, s: a.sign("subject", "localhost", names="DNS:elsewhere"), "ours", "localhost",
                                 "it is for another host name"),
    "another authority": (lambda a, s: s.sign("stranger"), "ours", "localhost",
                          "the authority that signed it is not among the trusted ones"),
    "another authority in the chain": (lambda a, s: (*s.sign("stranger2"), s.certificate), "ours", "localhost",
                                       "the authority that signed it is self-signed and not among the trusted ones"),
    "the system's authorities": (lambda a, s: a.sign("private"), "", "localhost",
                                 "the authority that signed it is not among the trusted ones"),
    "expired": (lambda a, s: a.sign("expired", starts=LONG_AGO, ends=PAST), "ours", "localhost", "it has expired"),
    "not yet valid": (lambda a, s: a.sign("early", starts=FUTURE), "ours", "localhost", "it is not valid yet"),
    "self-signed": (lambda a, s: self_signed(a), "ours", "localhost", "it is self-signed and not among the trusted ones"),
    "for clients only": (lambda a, s: a.sign("client_only", usage="clientAuth"), "ours", "localhost", "certificate purpose"),
    "for development": (lambda a, s: a.sign("development", "ACEMQ DEVELOPMENT ONLY - DO NOT TRUST"), "ours", "localhost",
                        "presented a development certificate"),
}


def self_signed(authority):
    certificate, key = authority.path("alone.pem"), authority.path("alone.key")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
            "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate)
    return certificate, key


@pytest.mark.parametrize("what", REFUSED)
def test_refused(shop, authority, stranger, what):
    make, trusted, host, words = REFUSED[what]
    with presenting(*make(authority, stranger)) as port:
        said = said_with(shop, url=f"amqps://me@{host}:{port}", tls_ca_file=authority.certificate if trusted else "",
                         tls_verify="full")
        await_until(lambda: words in said()[0], 10, said)
        assert words in said()[1] and shop.status()["state"] == "disconnected"
        assert f"amqps://{host}:{port}" in said()[0]


def test_not_even_loosened(shop, authority):
    """`ca` looks at the dates too, and a development certificate is refused by `none`."""
    with presenting(*authority.sign("old", starts=LONG_AGO, ends=PAST)) as port:
        said = said_with(shop, url=f"amqps://me@127.0.0.1:{port}", tls_ca_file=authority.certificate, tls_verify="ca")
        await_until(lambda: "it has expired" in said()[0], 10, said)
    with presenting(*authority.sign("dev", "ACEMQ DEVELOPMENT ONLY - DO NOT TRUST")) as port:
        said = said_with(shop, url=f"amqps://me@127.0.0.1:{port}", tls_verify="none")
        await_until(lambda: "presented a development certificate" in said()[0], 10, said)


# -- certificates of ours ------------------------------------------------------


@pytest.fixture(scope="module")
def strict_broker(directory, authority):
    """A broker that wants to see a certificate of its clients."""
    with Broker() as broker:
        certificate, key = authority.sign("broker")
        broker.config.update({
            "listeners.ssl.local": f"127.0.0.1:{broker.tls_port}",
            "ssl_options.cacertfile": authority.certificate,
            "ssl_options.certfile": certificate,
            "ssl_options.keyfile": key,
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "true",
        })
        broker.restart()
        yield broker


@pytest.fixture
def strict(shop, strict_broker, authority):
    """Function of settings: the worker connects to that broker with them."""
    strict_broker.ensure_running()
    vhost = strict_broker.vhost()
    secret = shop.cluster.secret_file("strict-password", strict_broker.password + "\n")

    def connect(certificate="", key=""):
        return said_with(shop, url=vhost.url(scheme="amqps", host="localhost", port=strict_broker.tls_port),
                         password_file=secret, tls_ca_file=authority.certificate, tls_verify="full",
                         tls_cert_file=certificate, tls_key_file=key)

    connect.vhost = vhost
    return connect


def test_right_client_certificate(shop, strict, authority):
    """The relay publishes and the scheduler consumes, both over TLS, both with the certificate."""
    queue = strict.vhost.declare("events", exchange="orders", binding="#")
    strict(*authority.sign("client", "shop", usage="clientAuth"))
    ladder.await_consuming(shop)
    shop.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
    assert strict.vhost.get(queue).body == b"1"
    body = b"x" * 300_000  # many records of TLS, several frames
    ids = [ladder.put(strict.vhost, body=body), ladder.put(strict.vhost, 1.2)]
    found = strict.vhost.drain(queue, 2, 20)
    assert [message.properties.message_id for message in found] == ids and found[0].body == body
    assert shop.status()["broker"].startswith("amqps://localhost:")


@pytest.mark.parametrize("what, words", [("missing", "certificate required"), ("expired", "certificate expired"),
                                         ("of a stranger", "unknown ca"), ("key of another", "key values mismatch"),
                                         ("without its key", "go together"), ("no such file", "No such file"),
                                         ("not a certificate", "could not load client certificate")])
def test_wrong_client_certificate(shop, strict, authority, stranger, what, words):
    good = authority.sign("good", "shop", usage="clientAuth")
    pair = {"missing": lambda: (), "expired": lambda: authority.sign("lapsed", "shop", starts=LONG_AGO, ends=PAST, usage="clientAuth"),
            "of a stranger": lambda: stranger.sign("foreign", "shop", usage="clientAuth"),
            "key of another": lambda: (good[0], stranger.sign("foreign2")[1]), "without its key": lambda: (good[0],),
            "no such file": lambda: ("/nowhere.pem", good[1]), "not a certificate": lambda: (good[1], good[1])}[what]()
    said = strict(*pair)
    await_until(lambda: words in said()[0].lower() or words in said()[0], 15, lambda: said()[0])
    assert shop.status()["state"] == "disconnected"
