"""Row events, decoded one by one, or many at once by column (decision 187)."""
