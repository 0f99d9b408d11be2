"""HTTP server for the tables and views of a warehouse: rows, SQL and change streams; no JVM."""
