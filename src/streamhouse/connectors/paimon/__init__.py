"""The `paimon` connector: tables of a warehouse as sources and sinks of continuous queries."""
