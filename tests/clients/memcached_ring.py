"""pymemcache and emcache over three nodes that know their ring, as docs/scale-out.md configures
them."""

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import emcache
from pymemcache.client.base import Client
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheServerError, MemcacheUnexpectedCloseError

from _floe import Failure, check

NODES = 3
KEYS = [f"key-{number}" for number in range(600)]
START_SECONDS = 30


class Node:
    """A node of the ring, on a port of loopback."""

    def __init__(self, binary, folder, ring, port, ring_hash):
        self.port = port
        data = os.path.join(folder, str(port))
        self.command = [binary, "serve", "--data-dir", data, "--device-size", "128MiB"]
        self.command += ["--tiny-size", "128MiB", "--s3-listen", "off", "--admin-listen", "off"]
        self.command += ["--memcached-listen", f"127.0.0.1:{port}", "--node-ring-hash"]
        self.command += [ring_hash, "--node-ring", ",".join(ring)]
        self.command += ["--node-name", f"127.0.0.1:{port}"]
        self.log = os.path.join(folder, f"{port}.log")
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError as error:
                if time.monotonic() > until or self.process.poll() is not None:
                    with open(self.log, encoding="utf-8") as log:
                        raise Failure(log.read()[-3000:]) from error
                time.sleep(0.02)

    def end(self, orderly=False):
        (self.process.terminate if orderly else self.process.kill)()
        self.process.wait(START_SECONDS)


def free_ports():
    """Ports that nothing listens on."""
    sockets = [socket.socket() for _ in range(NODES)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def configured(servers):
    """The client of docs/scale-out.md, which moves no key."""
    return HashClient(
        servers,
        retry_attempts=2**31,
        retry_timeout=0,
        default_noreply=False,
        connect_timeout=0.4,
        timeout=0.4,
    )


def ring(nodes):
    servers = [("127.0.0.1", node.port) for node in nodes]
    client = configured(servers)
    stored = sum(client.set(key, key.encode()) for key in KEYS)
    check("each node owns what the client sends it", stored == len(KEYS), stored)
    check("and returns it", client.get_many(KEYS) == {key: key.encode() for key in KEYS})
    refused = 0
    for key in KEYS:
        try:
            Client(servers[0], timeout=5).set(key, b"wrong", noreply=False)
        except MemcacheServerError as error:
            refused += b"owns this key" in error.args[0]
    check("a node refuses the keys of others", 250 < refused < 550, refused)

    nodes[1].end(orderly=True)
    failed = 0
    for key in KEYS:
        try:
            client.set(key, b"new")
        except (OSError, MemcacheUnexpectedCloseError):
            failed += 1
    check("keys of a node that is down fail and do not move", 100 < failed < 300, failed)
    moving = HashClient(servers, retry_attempts=0, dead_timeout=60, ignore_exc=True, timeout=0.4,
                        default_noreply=False)
    stored = sum(bool(moving.set(key, b"newest")) for key in KEYS)
    check("a client that moves keys is refused", stored <= len(KEYS) - failed, stored)
    nodes[1].start()
    old = [key for key in KEYS if client.get(key) == key.encode()]
    check("the node is back, warm", len(old) == failed, (len(old), failed))


def emcache_client(nodes):
    servers = [emcache.MemcachedHostAddress("127.0.0.1", node.port) for node in nodes]
    return emcache.create_client(servers, timeout=0.2, connection_timeout=0.4)


async def emcache_ring(nodes):
    logging.getLogger("emcache").setLevel(logging.CRITICAL)
    client = await emcache_client(nodes)
    for key in KEYS:
        await client.set(key.encode(), key.encode())
    found = {key: await client.get(key.encode()) for key in KEYS}
    right = sum(item is not None and item.value == key.encode() for key, item in found.items())
    check("each node owns what emcache sends it", right == len(KEYS), right)
    nodes[1].end(orderly=True)
    failed = 0
    for key in KEYS:
        try:
            await client.set(key.encode(), b"new")
        except (asyncio.TimeoutError, OSError, emcache.CommandError):
            failed += 1
    check("emcache moves no keys of a node that is down", 100 < failed < 300, failed)
    await client.close()
    nodes[1].start()
    client = await emcache_client(nodes)
    items = [(key, await client.get(key.encode())) for key in KEYS]
    old = sum(item is not None and item.value == key.encode() for key, item in items)
    check("the node is back, warm, for emcache too", old == failed, (old, failed))
    await client.close()


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FLOE_BINARY")
    if not binary:
        sys.exit("name the floe binary as the first argument or in FLOE_BINARY")
    folder = tempfile.mkdtemp(prefix="floe-ring-")
    try:
        for ring_hash, test in (
            ("pymemcache", ring),
            ("emcache", lambda nodes: asyncio.run(emcache_ring(nodes))),
        ):
            nodes = []
            try:
                ports = free_ports()
                servers = [f"127.0.0.1:{port}" for port in ports]
                for port in ports:
                    nodes.append(Node(binary, folder, servers, port, ring_hash))
                test(nodes)
            finally:
                for node in nodes:
                    node.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
