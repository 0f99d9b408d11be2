"""Files, locks and retries of S3-compatible object stores."""
