"""Messages between this process and its workers: JSON over a socket, and memory to share."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

__all__ = ["receive", "receive_descriptor", "send", "send_descriptor"]

_LENGTH = struct.Struct("<I")


def send(link: socket.socket, message: Any) -> None:
    """Send one message.

    Raises:
        OSError: nobody is there any more.
    """
    body = json.dumps(message, separators=(",", ":")).encode()
    link.sendall(_LENGTH.pack(len(body)) + body)


def receive(link: socket.socket) -> Any:
    """Wait for one message.

    Raises:
        EOFError: the other side has ended.
    """
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    return json.loads(_exactly(link, length))


def send_descriptor(link: socket.socket, descriptor: int) -> None:
    """Let the other side share an open file."""
    socket.send_fds(link, [b"."], [descriptor])


def receive_descriptor(link: socket.socket) -> int:
    """Wait for an open file of the other side's.

    Raises:
        EOFError: the other side has ended.
    """
    _, descriptors, _, _ = socket.recv_fds(link, 1, 1)
    if not descriptors:
        raise EOFError("the other side has ended")
    return descriptors[0]


def _exactly(link: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = link.recv(size - len(parts))
        if not part:
            raise EOFError("the other side has ended")
        parts += part
    return parts
