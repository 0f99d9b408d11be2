"""Bearer tokens and their permissions: which views, and which acts (read, sql, run)."""
