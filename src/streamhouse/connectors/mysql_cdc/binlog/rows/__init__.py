"""Row events, decoded many at once by column (decision 042)."""
