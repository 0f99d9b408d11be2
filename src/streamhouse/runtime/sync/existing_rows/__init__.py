"""Rows that the targets of a sync have already: compared, read again, or emptied."""
