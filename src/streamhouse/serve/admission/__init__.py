"""Who is served when: fair queues, rate limits, and bounds on memory and threads."""
