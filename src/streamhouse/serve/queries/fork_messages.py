"""What a server, the parent of its processes and these say to each other."""

from __future__ import annotations

import struct

LENGTH = struct.Struct("!Q")
"""Stands before what a process is asked, and before what it answers."""
MESSAGE = struct.Struct("!cq")
FORK, END = b"F", b"E"
"""What a server says to the parent: with a socket, and with the number of a process."""
NUMBER = struct.Struct("!q")
"""What the parent answers: the number of the process."""
LONG_S = 1.0
"""From when on a query gives way to others; its process is good for no other then."""
