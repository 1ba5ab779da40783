"""A real cluster's log files as rows of a trace: lines to facts, facts of a partition to rows.

    files    which files there are, and whose
    lines    a line's time, level, message; what continues the line before
    texts    Kafka's messages, 1.x to 3.9, as a table: message to facts
    requests kafka.request.logger: requests to facts, fetch sessions to fetches
    weave    the facts of one partition, of all brokers, to trace rows
    ticks    the expiration checks that no line tells of
    frames   the same on Spark

All but `files` and `frames` is pure. Source: isr-replay.md §8.
"""
