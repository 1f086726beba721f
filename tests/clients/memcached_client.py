"""memcached's own clients: pymemcache, and libmemcached's tools where they are."""

import os
import re
import shutil
import subprocess
import sys

from pymemcache import serde
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheIllegalInputError, MemcacheServerError

from _floe import check, pattern, run

TOOL_SECONDS = 300
# The largest item is 1 MiB with its key and what memcached counts beside it.
LARGEST = (1 << 20) - 48 - 8 - 1 - 2


def commands(client):
    """Every command that the client knows."""
    client.flush_all()
    check("a miss", client.get("absent") is None)
    check("set", client.set("key", b"value", noreply=False))
    check("get", client.get("key") == b"value")
    check("add of what is there", not client.add("key", b"other", noreply=False))
    check("replace", client.replace("key", b"1", noreply=False))
    check("replace of nothing", not client.replace("absent", b"1", noreply=False))
    check("append", client.append("key", b"2", noreply=False))
    check("prepend", client.prepend("key", b"3", noreply=False))
    check("what came of it", client.get("key") == b"312")
    check("incr", client.incr("key", 8) == 320)
    check("decr", client.decr("key", 400) == 0)
    check("incr of nothing", client.incr("absent", 1) is None)
    value, version = client.gets("key")
    check("cas", client.cas("key", b"new", version, noreply=False) is True)
    check("cas again", client.cas("key", b"newer", version, noreply=False) is False)
    check("cas of nothing", client.cas("absent", b"x", version, noreply=False) is None)
    check("touch", client.touch("key", 100, noreply=False))
    if hasattr(client, "gat"):
        check("gat", client.gat("key", expire=100) == b"new")
        check("gats", client.gats("key", expire=100)[0] == b"new")
    many = {f"many-{number}": pattern(number, number * 97) for number in range(200)}
    check("set_many", client.set_many(many, noreply=False) == [])
    check("get_many", client.get_many(list(many)) == many)
    check("gets_many", {k: v for k, (v, _) in client.gets_many(list(many)).items()} == many)
    check("delete", client.delete("key", noreply=False))
    check("deleted", client.get("key") is None)
    check("delete_many", client.delete_many(["many-1", "many-2"], noreply=False))
    check("deleted too", client.get_many(["many-1", "many-2"]) == {})
    check("a past expiry", client.set("past", b"x", expire=-1, noreply=False))
    check("is past", client.get("past") is None)
    check("stats", client.stats()[b"threads"] > 0)
    check("version", client.version().startswith(b"1.6."))
    check("noreply", [client.set("quiet", b"x"), client.get("quiet")] == [True, b"x"])
    check("flush_all", client.flush_all(noreply=False))
    check("flushed", client.get_many(list(many)) == {})
    try:
        client.set("k" * 251, b"x")
        check("a long key", False)
    except MemcacheIllegalInputError:
        pass


def large(client):
    """Values up to the largest, and one that is too large."""
    for length in (65_536, 65_537, 300_000, 1_000_000, LARGEST - len("large")):
        value = pattern(length, length)
        check(f"set of {length} bytes", client.set("large", value, noreply=False))
        check(f"get of {length} bytes", client.get("large") == value)
    check("append to it is refused", not client.append("large", b"x" * 100, noreply=False))
    try:
        client.set("large", b"x" * (LARGEST + 1), noreply=False)
        check("a value that is too large", False)
    except MemcacheServerError as error:
        check("a value that is too large", b"object too large for cache" in error.args[0], error)
    check("what was there is gone", client.get("large") is None)


def pymemcache(host, port, path):
    for where in ((host, port), f"unix:{path}"):
        print(f"pymemcache at {where}", flush=True)
        client = Client(where, connect_timeout=30, timeout=30)
        commands(client)
        large(client)
        client.close()
    pooled = PooledClient((host, port), serde=serde.pickle_serde, max_pool_size=4, timeout=30)
    check("an object through a pool", pooled.set("pickled", {"a": [1, 2.5, None]}, noreply=False))
    check("comes back", pooled.get("pickled") == {"a": [1, 2.5, None]})
    hashed = HashClient([f"{host}:{port}"], timeout=30)
    check("a hash client", hashed.set_many({"h1": b"1", "h2": b"2"}, noreply=False) == [])
    check("finds its own", hashed.get_many(["h1", "h2"]) == {"h1": b"1", "h2": b"2"})


class Tools:
    """libmemcached's programs; says loudly which are not there."""

    def __init__(self, host, port):
        self.server = f"--servers={host}:{port}"

    def run(self, names, *arguments, wanted=0, **more):
        """Runs the first of `names` that there is; what it printed, or None."""
        name = next((name for name in names if shutil.which(name)), None)
        if name is None:
            print(f"SKIPPED: no {' or '.join(names)} (Debian: libmemcached-tools)", file=sys.stderr)
            return None
        done = subprocess.run(
            [name, *arguments], capture_output=True, text=True, timeout=TOOL_SECONDS, **more
        )
        printed = done.stdout + done.stderr
        check(f"{name} {' '.join(arguments)}", done.returncode == wanted, printed[-3000:])
        return printed


def libmemcached(host, port, folder):
    tools = Tools(host, port)
    # The binary protocol is not spoken: -a asks for the text protocol only.
    # Debian calls memcapable so, since another package has that name.
    printed = tools.run(("memccapable", "memcapable"), "-h", host, "-p", port, "-a")
    if printed is not None:
        passed = printed.count("[pass]")
        check(f"all of its {passed} tests passed", passed > 20 and "[FAIL]" not in printed, printed)
    for test in ("set", "get", "mget"):
        load = ("--concurrency=4", "--execute-number=500", f"--test={test}")
        tools.run(("memcslap",), tools.server, *load)
    load = ("-s", f"{host}:{port}", "-T", "2", "-c", "16", "-v", "0.5", "-e", "0.05")
    for size in (("-x", "40000", "-d", "8"), ("-x", "2000", "-X", "200000")):
        printed = tools.run(("memcaslap", "memaslap"), *load, *size)
        if printed is not None:
            wrong = dict(re.findall(r"(get_misses|verify_misses|verify_failed): (\d+)", printed))
            check("it found what it had stored", set(wrong.values()) == {"0"}, wrong)
    files(tools, folder)


def files(tools, folder):
    """A file in, looked at, and out again."""
    name = "large.bin"
    value = pattern(3, 900_000)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(value)
    if tools.run(("memccp",), tools.server, name, cwd=folder) is None:
        return
    copy = os.path.join(folder, "copy.bin")
    tools.run(("memccat",), tools.server, f"--file={copy}", name)
    with open(copy, "rb") as file:
        check("memccat brings the same bytes", file.read().rstrip(b"\n") == value.rstrip(b"\n"))
    tools.run(("memcexist",), tools.server, name)
    tools.run(("memctouch",), tools.server, "--expire=1000", name)
    tools.run(("memcstat",), tools.server)
    tools.run(("memcping",), tools.server)
    tools.run(("memcrm",), tools.server, name)
    tools.run(("memcexist",), tools.server, name, wanted=1)
    tools.run(("memcflush",), tools.server)


def body(rig):
    host, port = rig.memcached.rsplit(":", 1)
    pymemcache(host, int(port), rig.memcached_path)
    libmemcached(host, port, rig.folder)


run(body)
