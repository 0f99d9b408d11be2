"""Admission control: fair queues, rate limits, and limits on memory and threads."""
