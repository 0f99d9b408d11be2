"""The settings of a script, which SET and RESET change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from streamhouse.sql.options.flink_settings import SYNONYMS
from streamhouse.sql.options.known_options import check_set


class Settings(Mapping[str, str]):
    """The set options, by the names that Flink prefers; `notice` receives warnings."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._values: dict[str, str] = {}

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def streaming(self) -> bool:
        """Whether queries over tables are continuous (`execution.runtime-mode`)."""
        return self.get("execution.runtime-mode", "streaming").lower() == "streaming"

    def set(self, key: str, value: str) -> None:
        """Run SET; `OptionError` for an unknown option or value."""
        warning = check_set(key, value)
        if warning is not None:
            self._notice(warning)
        self._values[SYNONYMS.get(key, key)] = value

    def reset(self, key: str | None) -> None:
        """Run RESET, of one option or (None) of all."""
        if key is None:
            self._values.clear()
        else:
            self._values.pop(SYNONYMS.get(key, key), None)
