"""The protocol between the server, the parent of worker processes, and the workers."""

from __future__ import annotations

import struct

LENGTH = struct.Struct("!Q")
"""Length prefix of the messages between the server and a worker."""
MESSAGE = struct.Struct("!cq")
FORK, END = b"F", b"E"
"""Commands of the server to the parent: fork a worker for the socket sent along; kill a pid."""
NUMBER = struct.Struct("!q")
"""The parent's reply: the pid."""
LONG_S = 1.0
"""A query that runs longer gets a lower priority, and its process is not reused."""
