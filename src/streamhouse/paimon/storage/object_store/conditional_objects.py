"""Objects with their ETags, and writes on condition that an object is missing or unchanged.

An ETag identifies the content that a writer has seen. Such writes are what locks, snapshots and
registrations of checkpoints are made of.
"""

from __future__ import annotations

from streamhouse.paimon.storage.object_store.object_requests import ObjectRequests
from streamhouse.sql.options.store_options import CONDITIONAL

_REFUSED = 412
"""The status of a request whose condition is not met."""
_MISSING = 404


class ConditionalObjects:
    """Reads objects with their ETags, and writes them under conditions."""

    def __init__(self, requests: ObjectRequests) -> None:
        self._requests = requests

    @property
    def supported(self) -> bool:
        """Whether the store has conditional writes, as far as the user's options say."""
        return self._requests.options.get(CONDITIONAL, "true") == "true"

    def read(self, path: str) -> tuple[str, str] | None:
        """The text of an object, and its ETag; None if there is no such object."""
        found = self._requests.get(path)
        return None if found is None else (found[0].decode(), found[1])

    def etag(self, path: str) -> str | None:
        """The ETag of an object; None if there is no such object."""
        head = self._requests.head(path)
        return None if head is None else str(head["ETag"])

    def write(self, path: str, text: str) -> str:
        """Create or replace an object whatever is there; returns its ETag."""
        return self._requests.put(path, text.encode())

    def create(self, path: str, text: str) -> str | None:
        """Write an object that must not exist; returns its ETag, None if it exists."""
        return self._write_if(path, text, IfNoneMatch="*")

    def replace(self, path: str, text: str, etag: str) -> str | None:
        """Replace an object if it still has this ETag; returns the new one, None if it has not."""
        return self._write_if(path, text, IfMatch=etag)

    def _write_if(self, path: str, text: str, **condition: str) -> str | None:
        expected = (200, _MISSING, _REFUSED)
        answer = self._requests.send("PUT", path, expected, text.encode(), condition)
        return answer.etag if answer.status == 200 else None

    def delete(self, path: str, etag: str | None = None) -> bool:
        """Delete one object, if it is there.

        With `etag` only if it has this ETag, in stores that know this condition. Returns False if
        the object has another one.
        """
        condition = {} if etag is None else {"IfMatch": etag}
        expected = (200, 204, _MISSING, _REFUSED)
        return self._requests.send("DELETE", path, expected, b"", condition).status != _REFUSED
