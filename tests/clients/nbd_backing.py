"""Volumes whose backing devices are exports of qemu-nbd and nbdkit, where they are.

fio verifies each volume while its NBD server is killed and started again."""

import os
import shutil
import signal
import subprocess
import time

from _floe import START_SECONDS, check, pattern, run

MIB = 1 << 20
BYTES = 64 * MIB
KILLS = 5

# Programs, with the words before the image. qemu-nbd wants a name of the export.
SERVERS = {
    "qemu": ("qemu-nbd", "--persistent", "--shared=8", "--format=raw", "--export-name=disk"),
    "nbdkit": ("nbdkit", "--foreground", "--exit-with-parent", "--threads=16"),
}


class Server:
    """An NBD server of an image on a Unix socket."""

    def __init__(self, folder, name):
        self.image = os.path.join(folder, f"{name}.img")
        self.socket = os.path.join(folder, f"{name}.sock")
        program, *words = SERVERS[name]
        at = f"--socket={self.socket}" if name == "qemu" else f"--unix={self.socket}"
        file = self.image if name == "qemu" else f"file={self.image}"
        plugin = [] if name == "qemu" else ["file"]
        self.words = [program, *words, at, *plugin, file]
        self.process = None
        with open(self.image, "wb") as made:
            made.truncate(BYTES)

    def start(self):
        if os.path.exists(self.socket):
            os.remove(self.socket)
        self.process = subprocess.Popen(self.words)
        deadline = time.monotonic() + START_SECONDS
        while not os.path.exists(self.socket) and time.monotonic() < deadline:
            time.sleep(0.02)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


servers = {}


def volumes(folder):
    """Starts the servers, and returns the settings of their volumes."""
    text = f"""
[volumes]
path = "{folder}/volumes.floe"
size = "16MiB"
cleaning = {{ kind = "acp" }}
"""
    for name, words in SERVERS.items():
        if shutil.which(words[0]) is None:
            print(f"skipped: {words[0]} not installed", flush=True)
            continue
        servers[name] = Server(folder, name)
        servers[name].start()
        text += f"""
[volume.{name}]
backing = "nbd+unix:///disk?socket={servers[name].socket}"
mode = "write-back"
nbd = {{ fence_seconds = 0.2 }}
"""
    return text


def body(rig):
    for name, server in servers.items():
        uri = f"nbd+unix:///{name}?socket={rig.nbd_path}"
        print(f"behind {name}", flush=True)
        if shutil.which("fio"):
            load = subprocess.Popen([
                "fio", "--name=floe", "--ioengine=nbd", f"--uri={uri}", "--rw=randrw",
                "--bsrange=4k-64k", "--iodepth=16", "--size=48m", "--io_size=1g", "--fsync=64",
                "--time_based", "--runtime=12", "--verify=crc32c", "--verify_backlog=256",
                "--verify_fatal=1", "--verify_state_save=0", "--randseed=7",
                "--output-format=terse",
            ], stdout=subprocess.DEVNULL)
            for _ in range(KILLS):
                time.sleep(1.5)
                server.kill()
                time.sleep(0.3)
                server.start()
            check(f"fio verifies all blocks while {name} is killed", load.wait(120) == 0)
        if shutil.which("nbdcopy"):
            image, back = os.path.join(rig.folder, "image"), os.path.join(rig.folder, "back")
            with open(image, "wb") as file:
                file.write(pattern(7, BYTES))
            subprocess.run(["nbdcopy", "--flush", image, uri], check=True, timeout=120)
            subprocess.run(["nbdcopy", uri, back], check=True, timeout=120)
            with open(image, "rb") as one, open(back, "rb") as other:
                check("nbdcopy returns what it wrote", one.read() == other.read())
    failed = rig.metric("floe_nbd_requests_total", result="eio")
    check("no request failed", failed == 0, failed)


if __name__ == "__main__":
    try:
        run(body, origin="folder", settings=lambda rig: volumes(rig.folder))
    finally:
        for server in servers.values():
            server.kill()
