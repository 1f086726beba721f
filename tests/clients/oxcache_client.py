"""OxCache's protocol against Floe, spoken from its description."""

import socket
import struct

from _floe import BUCKET, check, pattern, run


def varint(number):
    """bincode 2's standard encoding of an unsigned number."""
    if number < 251:
        return bytes([number])
    for tag, form in ((251, "<H"), (252, "<I"), (253, "<Q")):
        if number < 1 << (8 * struct.calcsize(form)):
            return bytes([tag]) + struct.pack(form, number)
    raise ValueError(number)


def read_varint(data):
    """The number at the start of `data`, and the rest."""
    if data[0] < 251:
        return data[0], data[1:]
    form = {251: "<H", 252: "<I", 253: "<Q"}[data[0]]
    size = struct.calcsize(form)
    return struct.unpack(form, data[1 : 1 + size])[0], data[1 + size :]


class Client:
    """One connection."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def send(self, key, offset, size):
        """Asks for a range; the answer comes later."""
        name = key.encode()
        body = b"\0" + varint(len(name)) + name + varint(offset) + varint(size)
        self.socket.sendall(struct.pack(">I", len(body)) + body)

    def receive(self):
        """The next answer: its bytes, or the error's text."""
        length = struct.unpack(">I", self.file.read(4))[0]
        body = self.file.read(length)
        size, rest = read_varint(body[1:])
        assert size == len(rest), (size, len(rest))
        return rest if body[0] == 1 else rest.decode()


def everything(rig):
    """Chunks of objects, pipelined, compared with the origin."""
    bodies = {str(key): pattern(key, 200_000 + key) for key in range(20)}
    for key, body in bodies.items():
        rig.origin.put_object(Bucket=BUCKET, Key=key, Body=body)
    client = Client(rig.oxcache_path)
    asked = [(key, offset, 65536) for key in bodies for offset in (0, 65536, 12345)]
    for turn in ("first", "second"):
        for request in asked:
            client.send(*request)
        right = all(client.receive() == bodies[key][offset : offset + size] for key, offset, size in asked)
        check(f"{len(asked)} pipelined reads, {turn} time", right)
    for request, word in [
        (("missing", 0, 1), "missing"),
        (("1", 0, 0), "size"),
        (("1", 2**64 - 1, 2), "64 bits"),
        (("1", 200_000, 10), "200001"),
    ]:
        client.send(*request)
        answer = client.receive()
        check(f"{request} is answered with an error", isinstance(answer, str) and word in answer, answer)
    client.send("1", 0, 10)
    check("the connection goes on", client.receive() == bodies["1"][:10])
    client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    check("junk is answered with an error", isinstance(client.receive(), str))
    check("  and the connection ends", client.file.read(1) == b"")


run(everything)
