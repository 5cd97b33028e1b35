# SPDX-License-Identifier: Apache-2.0
"""Where processes listen, and who may come that is no rank: `strangers.py ADDRESS PORT` lets all of them come, and says
so when they have."""

import contextlib
import socket
import struct
import sys
import time
from pathlib import Path


def descriptors(process):
    """The inodes of a process's sockets."""
    links = []
    for link in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def connections(process, state):
    """The own addresses and ports of a process's TCP sockets in a state."""
    own = descriptors(process)
    for line in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == state and fields[9] in own:
            address, port = fields[1].split(":")
            yield socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)


def listening(process):
    """Where a process listens: the names of Unix sockets as bytes, and pairs of an address and a port."""
    own, found = descriptors(process), list(connections(process, "0A"))
    for line in Path(f"/proc/{process}/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and fields[6] in own and int(fields[3], 16) & 0x10000:
            found.append(fields[7].replace("@", "\0", 1).encode())
    return found


def come_new(process, before, patience=10):
    """Where a process listens that did not before."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if found := [address for address in listening(process) if address not in before]:
            return found
        time.sleep(0.01)
    raise TimeoutError("nothing listens")


def connected(address):
    made = socket.socket(socket.AF_UNIX if isinstance(address, bytes) else socket.AF_INET)
    made.settimeout(10)
    made.connect(address)
    return made


def closes(address):
    connected(address).close()


def says_nothing(address):
    return connected(address)


def says_little(address):
    made = connected(address)
    made.sendall(b"GET")
    return made


def says_anything(address):
    made = connected(address)
    made.sendall(bytes(range(256)) * 8)
    return made


def has_no_secret(address):
    """Says what a rank says, with a proof of another secret."""
    made = connected(address)
    magic, version = struct.unpack("=2I", made.recv(24)[:8])
    info = b"0" * 40 + bytes(56) + struct.pack("=Ii", 0, 1) + bytes(64)
    made.sendall(struct.pack("=4I", magic, version, 2, 1) + b"0" * 40 + bytes(16) + info + b"0" * 40)
    reply = made.recv(4096)
    assert struct.unpack("=i", reply[:4])[0] != 0 and made.recv(1) == b"", reply
    return made


ALL = [closes, says_nothing, says_little, says_anything, has_no_secret]

if __name__ == "__main__":
    kept = [stranger((sys.argv[1], int(sys.argv[2]))) for stranger in ALL * 4]
    print("all have come", flush=True)
    sys.stdin.read()
