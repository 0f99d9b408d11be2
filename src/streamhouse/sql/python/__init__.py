"""Python functions of a script: declared by CREATE FUNCTION, called like Flink's own."""
