"""The most similar known word, for errors about a word that is not known."""

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 100
"""The most words of a hint; a Kafka cluster may have thousands of topics."""


def closest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The most similar known word, whatever the case; None if none is similar enough.

    `cutoff`: the least similarity, from 0 to 1, as in `difflib`.
    """
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for error messages: the most similar known word, or else the known words."""
    names = sorted(set(known))
    found = closest(word, names)
    if found is not None:
        return f"did you mean '{found}'?"
    if len(names) > _MOST:
        return f"known: {', '.join(names[:_MOST])} and {len(names) - _MOST:,} more"
    return f"known: {', '.join(names)}" if names else "none are known"
