"""NBD clients: nbdinfo, nbdcopy, nbdsh, qemu-img, qemu-io and fio, where they are.

Each runs against an export in memory, a write-back volume and a write-through one.
The volumes are larger than their cache, so that it evicts and cleans."""

import os
import shutil
import subprocess

from _floe import check, pattern, run

TOOL_SECONDS = 300
MIB = 1 << 20
EXPORT_BYTES = 64 * MIB

VOLUMES = ("write-back", "write-through")
EXPORTS = ("disk", *VOLUMES)
CACHE_SIZE = "16MiB"


def has(*tools):
    """True if all programs are installed; otherwise the part is skipped, loudly."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed", flush=True)
    return not missing


def tool(*words, code=0, path=None):
    """Runs a program, and returns its output. It finds others in `path`."""
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TOOL_SECONDS,
        check=False,
        env={**os.environ, "PATH": path or os.environ["PATH"]},
    )
    output = done.stdout.decode("utf-8", "replace")
    check(f"{os.path.basename(words[0])} ends with {code}", done.returncode == code, output)
    return output


def information(uris):
    """nbdinfo lists, describes and maps the exports."""
    if not has("nbdinfo"):
        return
    for uri in uris:
        listed = tool("nbdinfo", "--list", uri(""))
        names = [f'export="{name}":' in listed for name in (*EXPORTS, "null", "fixed")]
        check("every export is listed", all(names), listed)
        for name in EXPORTS:
            found = tool("nbdinfo", uri(name))
            for fact in (f"export-size: {EXPORT_BYTES}", "base:allocation", "can_multi_conn: true"):
                check(f"nbdinfo says {fact} of {name}", fact in found, found)
            mapped = tool("nbdinfo", "--map", uri(name))
            check("the map covers the export", str(EXPORT_BYTES) in mapped, mapped)
        check("nbdinfo sees a read-only export", "is_read_only: true" in tool("nbdinfo", uri("fixed")))
        tool("nbdinfo", uri("absent"), code=1)


def copies(uris, name, folder):
    """nbdcopy and qemu-img copy an image there and back."""
    image, back = os.path.join(folder, "image"), os.path.join(folder, "back")
    for number, uri in enumerate(uris):
        with open(image, "wb") as file:
            file.write(pattern(number, EXPORT_BYTES))
        if has("nbdcopy"):
            tool("nbdcopy", "--flush", image, uri(name))
            tool("nbdcopy", uri(name), back)
            check("nbdcopy returns what it wrote", same(image, back))
            tool("nbdcopy", "--synchronous", uri(name), back)
            check("so it does one request at a time", same(image, back))
        if has("qemu-img"):
            with open(image, "r+b") as file:
                file.seek(5 * MIB)
                file.write(bytes(9 * MIB))
            tool("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, uri(name))
            tool("qemu-img", "compare", "-f", "raw", "-F", "raw", image, uri(name))
            tool("qemu-img", "convert", "-f", "raw", "-O", "raw", uri(name), back)
            check("qemu-img returns what it wrote", same(image, back))


def same(one, other):
    with open(one, "rb") as first, open(other, "rb") as second:
        return first.read() == second.read()


def shell(uri, name):
    """nbdsh sends each command, and sees each error."""
    if not has("nbdsh"):
        return
    script = f"""
import errno
h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.set_strict_mode(0)
h.connect_uri({uri(name)!r})
assert h.get_protocol() == "newstyle-fixed" and h.get_structured_replies_negotiated()
assert h.get_block_size(nbd.SIZE_MINIMUM) == 512
assert h.get_block_size(nbd.SIZE_MAXIMUM) == 32 << 20
h.pwrite(b"a" * 4096, 8192, nbd.CMD_FLAG_FUA)
assert h.pread(4096, 8192, nbd.CMD_FLAG_DF) == b"a" * 4096
h.zero(512, 8192, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(1024, 8192) == bytes(512) + b"a" * 512
h.trim(4096, 8192)
h.cache(1 << 20, 0)
h.flush()
extents = []
h.block_status(1 << 20, 0, lambda context, at, found, error: extents.append((context, found)))
assert extents == [("base:allocation", [1 << 20, 0])], extents
def refused(name, call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        assert error.errnum == getattr(errno, name), (name, error)
        return
    raise AssertionError(name)
refused("EINVAL", h.pread, 512, h.get_size())
refused("EINVAL", h.pread, 512, 1)
refused("ENOSPC", h.pwrite, bytes(512), h.get_size())
refused("ENOTSUP", h.zero, 512, 0, nbd.CMD_FLAG_FAST_ZERO)
h.shutdown()
fixed = nbd.NBD()
fixed.set_strict_mode(0)
fixed.connect_uri({uri("fixed")!r})
refused("EPERM", fixed.pwrite, bytes(512), 0)
refused("EPERM", fixed.trim, 512, 0)
"""
    # Debian's Python has libnbd, that of the scripts has not.
    tool("nbdsh", "-c", script, path="/usr/bin:/bin")


def qemu(uri, name):
    """qemu-io writes patterns and finds them."""
    if not has("qemu-io"):
        return
    commands = [
        "write -P 7 1M 64k", "write -f -P 8 3M 12k", "write -z 2M 1M", "discard 8M 1M", "flush",
        "aio_write -P 9 16M 1M", "aio_write -P 10 20M 1M", "aio_flush",
        "read -P 7 1M 64k", "read -P 8 3M 12k", "read -P 0 2M 1M", "read -P 9 16M 1M",
        "read -P 10 20M 1M",
    ]
    words = [word for command in commands for word in ("-c", command)]
    found = tool("qemu-io", "-f", "raw", *words, uri(name))
    check("qemu-io finds every pattern", "verification failed" not in found, found)


def verified_load(uri, name):
    """fio writes blocks of mixed sizes at several depths, and verifies each by CRC-32C."""
    if not has("fio") or "nbd" not in tool("fio", "--enghelp"):
        return
    for depth, sizes in ((1, "4k"), (32, "512-64k"), (8, "512-1m")):
        tool(
            "fio", "--name=floe", "--ioengine=nbd", f"--uri={uri(name)}", "--rw=randrw",
            f"--bsrange={sizes if '-' in sizes else f'{sizes}-{sizes}'}", "--bs_unaligned=0",
            f"--iodepth={depth}", "--size=48m", "--io_size=96m", "--verify=crc32c",
            "--verify_backlog=256", "--verify_fatal=1", "--verify_state_save=0", "--randseed=7", "--output-format=terse",
        )


def backing(folder, name):
    return os.path.join(folder, f"{name}.img")


def volumes(folder):
    """The settings of the volumes, whose backing files it makes."""
    text = f"""
[volumes]
path = "{folder}/volumes.floe"
size = "{CACHE_SIZE}"
cleaning = {{ kind = "acp" }}
"""
    for name in VOLUMES:
        with open(backing(folder, name), "wb") as file:
            file.truncate(EXPORT_BYTES)
        text += f"""
[volume.{name}]
backing = "{backing(folder, name)}"
mode = "{name}"
"""
    return text


def on_backing_devices(uri, folder):
    """Both volumes have their data on the backing devices, as their modes promise."""
    if not has("nbdcopy"):
        return
    image, back = os.path.join(folder, "image"), os.path.join(folder, "back")
    with open(image, "wb") as file:
        file.write(pattern(11, EXPORT_BYTES))
    for name in VOLUMES:
        tool("nbdcopy", "--flush", image, uri(name))
        tool("nbdcopy", uri(name), back)
        check(f"{name} returns what was written", same(image, back))
    check("write-through equals its backing file", same(image, backing(folder, "write-through")))
    with open(image, "rb") as file, open(backing(folder, "write-back"), "rb") as written:
        blocks = zip(iter(lambda: file.read(4096), b""), iter(lambda: written.read(4096), b""))
        equal = sum(one == other for one, other in blocks) * 4096
    check("write-back has written back what its cache cannot keep", equal >= EXPORT_BYTES * 3 // 4, equal)


def body(rig):
    def over_tcp(export):
        return f"nbd://{rig.nbd}/{export}"

    def over_unix(export):
        return f"nbd+unix:///{export}?socket={rig.nbd_path}"

    information([over_tcp, over_unix])
    for name in EXPORTS:
        print(f"export {name}", flush=True)
        copies([over_tcp, over_unix], name, rig.folder)
        shell(over_unix, name)
        qemu(over_tcp, name)
        verified_load(over_unix, name)
    on_backing_devices(over_unix, rig.folder)
    failed = rig.metric("floe_nbd_requests_total", result="eio")
    check("no request failed in the server", failed == 0, failed)
    check("requests were counted", rig.metric("floe_nbd_requests_total", result="ok") > 1000)


if __name__ == "__main__":
    run(body, origin="folder", settings=lambda rig: volumes(rig.folder))
