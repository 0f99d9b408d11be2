"""In-memory databases of DuckDB, with the settings that all queries need."""

import duckdb


def open_database(threads: int = 2, **config: str | int | bool) -> duckdb.DuckDBPyConnection:
    """Open a new database in memory, in UTC; `config` is the rest of its configuration.

    No optimizer propagates statistics: DuckDB 2.0 loses the rows of an outer join whose condition
    reads one side only, if statistics tell that nothing meets it, and a HAVING is above.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": threads,
            "disabled_optimizers": "statistics_propagation",
            # Python variables are no relations.
            "python_enable_replacements": False,
            **config,
        },
    )
    return in_utc(connection)


def in_utc(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Give a new connection to a database the settings that all queries need."""
    connection.execute("SET TimeZone = 'UTC'")
    # If Python runs without a script file, DuckDB draws one on standard output, among the results.
    connection.execute("SET enable_progress_bar = false")
    return connection
