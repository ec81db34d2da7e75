"""Processes, ports and directories of the throwaway servers.

Servers run under their own users (root starts them, root cannot run
PostgreSQL), as direct children of this process, so that each is ended by its
own process id.  The kernel ends them too if this process is killed.  Start
them from the main thread: "parent died" means the starting thread.

May depend on: nothing of ours.
"""

import atexit
import ctypes
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count(1)


class StartFailed(RuntimeError):
    """A server did not come up; the message ends with the tail of its log."""


def server_user(name):
    """The user a server runs as: `name` for root, else whoever we are."""
    return name if os.geteuid() == 0 else None


def run_dir():
    """The directory everything lives in: the caller's, or one of our own that goes at exit."""
    given = os.environ.get("ACEMQ_RUN_DIR")
    if given:
        return given
    # Not $TMPDIR: the servers' users must be able to reach it, which a per-user one refuses.
    made = tempfile.mkdtemp(prefix="acemq.", dir="/tmp")
    os.chmod(made, 0o755)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    os.environ["ACEMQ_RUN_DIR"] = made
    return made


def new_dir(name, user=None, mode=0o755):
    """A fresh directory under the run directory."""
    return make_dir(os.path.join(run_dir(), f"{name}-{os.getpid()}-{next(_numbers)}"), user, mode)


def make_dir(path, user=None, mode=0o755):
    os.makedirs(path)
    os.chmod(path, mode)
    give(path, user)
    return path


def write_file(path, text, user=None, mode=0o644):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    os.chmod(path, mode)
    give(path, user)
    return path


def give(path, user):
    """Make `user` the owner."""
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)


def free_ports(count):
    """Loopback ports nobody listens on.

    Taken below the range of outgoing connections, so that a server that is
    down for a while finds its port free when it comes back.  All are held
    until all are found; between here and the server's bind another process may
    still be faster, so first starts are tried again with other ports.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as settings:
        first_outgoing = int(settings.read().split()[0])
    held = []
    try:
        for _ in range(1000):
            port = random.randrange(15000, first_outgoing) if first_outgoing > 16000 else 0
            probe = socket.socket()
            try:
                probe.bind(("127.0.0.1", port))
                held.append(probe)
            except OSError:
                probe.close()
            if len(held) == count:
                return [probe.getsockname()[1] for probe in held]
    finally:
        for probe in held:
            probe.close()
    raise RuntimeError("no free port found")


def credentials(user):
    """Keyword arguments that make subprocess run a command as `user`."""
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    groups = os.getgrouplist(user, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def spawn(argv, user, cwd, log, env=None, death_signal=signal.SIGTERM):
    """Start a server in a session of its own, its output appended to the file `log`."""

    def in_child():
        # A script started with & hands down an ignored SIGINT.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _libc.prctl(_PR_SET_PDEATHSIG, int(death_signal))

    with open(log, "ab") as out:
        return subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True, preexec_fn=in_child, **credentials(user))


def run_as(user, argv, cwd="/", env=None, timeout=120):
    """Run a short command as `user`; its output, or RuntimeError with it."""
    done = subprocess.run(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=timeout, check=False, **credentials(user))
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} failed ({done.returncode}):\n{text}")
    return text


def children_of(pid):
    """Process ids of the direct children."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listing:
            return [int(word) for word in listing.read().split()]
    except FileNotFoundError:
        return []


def process_exists(pid):
    """True while the process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_gone(pids, timeout):
    """Wait until none of the processes runs; those that still do."""
    deadline = time.monotonic() + timeout
    left = list(pids)
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if process_exists(pid)]
        if left:
            time.sleep(0.02)
    return left


def tail(path, lines=40):
    """The end of a log file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"
