"""Bearer tokens, and what each of them may read."""
