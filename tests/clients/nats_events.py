"""Notifications on a subject of a real server of NATS take the place of validations."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from urllib.parse import quote

from _floe import BUCKET, Failure, check, pattern, run, until

SUBJECT = "floe.bucket"
USER, PASSWORD = "floe", "a-secret-of-nats"
OBJECT_KEY = "a key+ü"
# Debian has it where only root looks for programs.
PROGRAM = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


class Publisher:
    """A client that only publishes, as MinIO does, and waits until the server has the message."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.lines = self.socket.makefile("rb")
        check("the server begins with INFO", self.lines.readline().startswith(b"INFO"))
        options = {"user": USER, "pass": PASSWORD, "verbose": False, "pedantic": True}
        self.send(f"CONNECT {json.dumps(options)}\r\n".encode())

    def send(self, text):
        self.socket.sendall(text + b"PING\r\n")
        while (line := self.lines.readline()) != b"PONG\r\n":
            if line.startswith(b"-ERR") or not line:
                raise Failure(f"nats-server: {line}")

    def publish(self, message):
        payload = json.dumps(message).encode()
        self.send(b"PUB %s %d\r\n%s\r\n" % (SUBJECT.encode(), len(payload), payload))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


class Server:
    def __init__(self, folder):
        self.port = free_port()
        self.log = os.path.join(folder, "nats.log")
        self.start()

    def start(self):
        command = [PROGRAM, "-a", "127.0.0.1", "-p", str(self.port), "-l", self.log]
        command += ["--user", USER, "--pass", PASSWORD]
        self.process = subprocess.Popen(command)
        until("nats-server accepts connections", lambda: accepts(self.port))

    def stop(self, by=signal.SIGKILL):
        self.process.send_signal(by)
        self.process.wait()


def subject_of(rig):
    rig.nats = Server(rig.folder)
    return f"""
[object]
consistency = "events"

[events]
nats = "nats://127.0.0.1:{rig.nats.port}"
nats_subject = "{SUBJECT}"
nats_user = "{USER}"
nats_password = "{PASSWORD}"
"""


def notification(key):
    """As MinIO writes it."""
    record = {"eventName": "s3:ObjectCreated:Put", "s3": {"bucket": {"name": BUCKET}, "object": {"key": quote(key)}}}
    return {"EventName": "s3:ObjectCreated:Put", "Key": f"{BUCKET}/{key}", "Records": [record]}


def events(rig):
    """Changes past the cache are heard of, and hits ask nothing, until the server is gone."""
    try:
        listen(rig)
    finally:
        rig.nats.stop()


def listen(rig):
    heard = lambda: rig.metric("floe_events_heard") == 1
    validations = lambda: rig.metric("floe_origin_requests_total", reason="validation")
    objects = lambda: rig.metric("floe_events_objects_total")
    get = lambda: rig.floe.get_object(Bucket=BUCKET, Key=OBJECT_KEY)["Body"].read()
    put = lambda body: rig.origin.put_object(Bucket=BUCKET, Key=OBJECT_KEY, Body=body)
    for round_number in range(2):
        until("the subject is heard", heard)
        publisher = Publisher(rig.nats.port)
        for version in range(2):
            body = pattern(2 * round_number + version, 100_000 + version)
            known = objects()
            put(body)
            publisher.publish(notification(OBJECT_KEY))
            until("a notification is heard of", lambda: objects() > known)
            check("  its version is served", get() == body)
            before = validations()
            check("  twice and more", all(get() == body for _ in range(20)))
            check("  without a request to the origin", validations() == before)
        # A killed server, and one that announces its shutdown.
        rig.nats.stop((signal.SIGKILL, signal.SIGUSR2)[round_number])
        until("the server is missed", lambda: not heard())
        body = pattern(10 + round_number, 50_000)
        put(body)
        check("a change without a notification is served", get() == body)
        rig.nats.start()
    until("the subject is heard again", heard)
    ended = rig.metric("floe_events_nats_failures_total", operation="listen")
    check("two sessions ended", ended == 2, ended)


if PROGRAM is None:
    print("skipped: nats-server not installed", flush=True)
    sys.exit(0)
run(events, settings=subject_of)
