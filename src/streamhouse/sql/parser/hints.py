"""Parses the hints `/*+ OPTIONS(…) */` on tables and `/*+ LOOKUP(…) */` on queries."""

from collections.abc import Iterator
from dataclasses import dataclass

from streamhouse.close_matches import closest, nearest
from streamhouse.errors import OptionError
from streamhouse.options import OptionValues, duration_ms, options_of, table_of
from streamhouse.sql.options import renamed_options
from streamhouse.sql.parser import elements, query_parser
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.plan import LookupRetry
from streamhouse.sql.secrets import quoted_options
from streamhouse.sql.text import Script

_WITHOUT_EFFECT = (
    "BROADCAST",
    "SHUFFLE_HASH",
    "SHUFFLE_MERGE",
    "NEST_LOOP",
    "MULTI_JOIN",
)
"""Hints about how Flink joins: they change no row."""
_STATE_TTL = "STATE_TTL"

_LOOKUP = options_of(table_of("streamhouse.sql.options", "lookup_options.toml")["hint"])
LOOKUP_HINT_KEYS = tuple(option.key for option in _LOOKUP)


@dataclass(frozen=True)
class LookupHint:
    """A LOOKUP hint: the looked-up table, the retry policy and the strategy.

    `strategy` is `full`, `partial`, `bucket`, or `shuffle`: `bucket` where that is possible.
    `ordered`: the output keeps the order of the stream, whatever the target.
    """

    table: str
    retry: LookupRetry | None
    strategy: str | None
    ordered: bool
    start: int
    end: int


def table_options(script: Script, body: str, start: int) -> dict[str, str]:
    """The options of a table's hint block, which begins at `start`, under their current names.

    Options of earlier releases that no longer have an effect are omitted (see `outdated`).
    """
    options: dict[str, str] = {}
    for name, at, cursor in _parse_hints(script, body, start + 3):
        if name != "OPTIONS":
            _refuse_hint(cursor, name, at, ("OPTIONS",), "on a table")
        offsets: dict[str, int] = {}
        hint_options = elements.option_list(cursor, offsets)
        for key in hint_options:
            if key in options:
                raise script.error(f"option '{key}' is given twice", offsets[key])
        options |= hint_options
    try:
        current = renamed_options.current(options)[0]
    except OptionError as error:
        end = start + len(body) + len("/*+*/")
        raise script.error(f"hint OPTIONS: {error}", start, end) from None
    return {key: value for key, value in current.items() if not renamed_options.dropped_option(key)}


def outdated(text: str) -> list[str]:
    """Notices about options of earlier Paimon releases in the hints of a statement."""
    if "/*+" not in text:
        return []
    notices: dict[str, None] = {}
    for hint in Script(text).hints(0, len(text)):
        # Each hint belongs to another table, so its options are checked on their own.
        options = {
            option.key: hint.text[option.start : option.end] for option in quoted_options(hint.text)
        }
        notices |= dict.fromkeys(renamed_options.current(options)[1])
    return list(notices)


def state_ttl_ms(script: Script, body: str, offset: int) -> int:
    """The longest time of the STATE_TTL hints of a query's hint block (ms); 0 without one."""
    longest = 0
    for name, start, cursor in _parse_hints(script, body, offset):
        if name != _STATE_TTL:
            _skip(cursor)
            continue
        for table, ttl in elements.option_list(cursor).items():
            try:
                longest = max(longest, duration_ms(table, ttl))
            except OptionError as error:
                end = cursor.previous.end + 1
                raise script.error(f"hint {_STATE_TTL}: {error}", start, end) from None
    return longest


def _skip(cursor: Cursor) -> None:
    cursor.expect("(")
    while not cursor.accept(")"):
        cursor.take()


def lookup_hints(script: Script, body: str, offset: int) -> list[LookupHint]:
    """The LOOKUP hints of a query's hint block whose text starts at `offset`."""
    hints = []
    for name, start, cursor in _parse_hints(script, body, offset):
        if name in (*_WITHOUT_EFFECT, _STATE_TTL):
            _skip(cursor)
            continue
        if name != "LOOKUP":
            _refuse_hint(cursor, name, start, ("LOOKUP",), "after SELECT")
        offsets: dict[str, int] = {}
        options = elements.option_list(cursor, offsets)
        end = cursor.previous.end + 1
        for key in options:
            if key not in LOOKUP_HINT_KEYS:
                raise script.error(
                    f"hint LOOKUP: unknown option '{key}'; {nearest(key, LOOKUP_HINT_KEYS)}",
                    offsets[key],
                    offsets[key] + len(key) + 2,
                )
        values = OptionValues(_LOOKUP, options)
        try:
            values.check("hint LOOKUP")
            strategy = _strategy(values)
        except OptionError as error:
            raise script.error(str(error), start, end) from None
        retry = None
        if "retry-predicate" in values:
            retry = LookupRetry(values["fixed-delay"], values["max-attempts"])
        ordered = values["output-mode"] == "ordered"
        hints.append(LookupHint(values["table"], retry, strategy, ordered, start, end))
    return hints


def _strategy(values: OptionValues) -> str | None:
    strategy: str | None = values["strategy"]
    if not values["shuffle"]:
        return strategy
    if strategy not in (None, "bucket"):
        raise OptionError(
            f"hint LOOKUP: 'shuffle' = 'true' requires strategy 'bucket', not '{strategy}'"
        )
    return strategy or "shuffle"


def _parse_hints(script: Script, body: str, offset: int) -> Iterator[tuple[str, int, Cursor]]:
    """Yields (name, offset, cursor at its parenthesis) for every hint in a block."""
    if not script.text.startswith(body, offset):
        # The body is from a view's text; the offset is where the query names the view.
        script = Script(" " * offset + body)
    cursor = Cursor(script, query_parser.lex(script, offset, offset + len(body)))
    if not cursor.tokens:
        raise script.error("the hint is empty; leave it out", offset - 3, offset + len(body) + 2)
    while True:
        start = cursor.offset
        yield cursor.identifier("a hint's name").upper(), start, cursor
        if cursor.done:
            return
        cursor.accept(",")


def _refuse_hint(
    cursor: Cursor, name: str, start: int, allowed: tuple[str, ...], where: str
) -> None:
    end = start + len(name)
    if name in ("OPTIONS", "LOOKUP", _STATE_TTL, *_WITHOUT_EFFECT):
        right_place = "after the table's name" if name == "OPTIONS" else "after SELECT"
        raise cursor.script.error(
            f"hint {name} is not allowed {where}; write it {right_place}", start, end
        )
    guess = closest(name, allowed)
    hint = f"did you mean {guess}?" if guess else f"known here: {', '.join(allowed)}"
    raise cursor.script.error(f"unknown hint {name}; {hint}", start, end)
