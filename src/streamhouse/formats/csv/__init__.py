"""The format `csv`: one record is one line."""
