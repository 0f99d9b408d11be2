"""Windows of views that wait for a watermark: their watermarks, and rows that come too late."""
