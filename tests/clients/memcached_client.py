"""memcached's own clients: pymemcache, and libmemcached's tools where they are."""

import shutil
import subprocess
import sys

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheIllegalInputError

from _floe import check, pattern, run

TOOL_SECONDS = 300


def pymemcache(host, port):
    client = Client((host, port), connect_timeout=30, timeout=30)
    client.flush_all()
    check("a miss", client.get("absent") is None)
    check("set", client.set("key", b"value", noreply=False))
    check("get", client.get("key") == b"value")
    check("add of what is there", not client.add("key", b"other", noreply=False))
    check("replace", client.replace("key", b"1", noreply=False))
    check("append", client.append("key", b"2", noreply=False))
    check("prepend", client.prepend("key", b"3", noreply=False))
    check("what came of it", client.get("key") == b"312")
    check("incr", client.incr("key", 8) == 320)
    check("decr", client.decr("key", 400) == 0)
    value, version = client.gets("key")
    check("cas", client.cas("key", b"new", version, noreply=False) is True)
    check("cas again", client.cas("key", b"newer", version, noreply=False) is False)
    check("cas of nothing", client.cas("absent", b"x", version, noreply=False) is None)
    check("touch", client.touch("key", 100, noreply=False))
    many = {f"many-{number}": pattern(number, number * 97) for number in range(200)}
    check("set_many", client.set_many(many, noreply=False) == [])
    check("get_many", client.get_many(list(many)) == many)
    check("delete", client.delete("key", noreply=False))
    check("deleted", client.get("key") is None)
    check("a past expiry", client.set("past", b"x", expire=-1, noreply=False))
    check("is past", client.get("past") is None)
    check("stats", client.stats()[b"threads"] > 0)
    check("version", client.version().startswith(b"1.6."))
    check("flush_all", client.flush_all(noreply=False))
    check("flushed", client.get_many(list(many)) == {})
    try:
        client.set("k" * 251, b"x")
        check("a long key", False)
    except MemcacheIllegalInputError:
        pass
    client.close()


def tool(name, *arguments):
    """Runs one of libmemcached's tools; says loudly where there is none."""
    if shutil.which(name) is None:
        print(f"SKIPPED: {name} is not installed (Debian: libmemcached-tools)", file=sys.stderr)
        return
    done = subprocess.run([name, *arguments], capture_output=True, text=True, timeout=TOOL_SECONDS)
    check(name, done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:])


def body(rig):
    host, port = rig.memcached.rsplit(":", 1)
    pymemcache(host, int(port))
    # The binary protocol is not spoken: -a asks for the text protocol only.
    tool("memcapable", "-h", host, "-p", port, "-a")
    tool("memcslap", f"--servers={host}:{port}", "--concurrency=4", "--execute-number=500")


run(body)
