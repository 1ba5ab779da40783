"""A real cluster's log files as rows of a trace: lines to facts, facts of a partition to rows.

    files    which files there are, and whose
    lines    a line's time, level, message; what continues the line before
    texts    Kafka's messages, 1.x to 3.9, as a table: message to facts
    reader   the lines of a file, or of a piece of one, to facts
    request_lines  kafka.request.logger: requests to facts, fetch sessions to fetches
    weave    the facts of one partition, of all brokers, to trace rows
    ticks    the expiration checks that no line tells of
    pieces   files in pieces that can be read apart, and the lines that may say something
    fact_columns  facts as narrow columns, and back
    kinds_of_brokers  what must be known of all facts before some are woven
    frames   lines to facts on Spark
    woven    facts to rows on Spark

All but `files`, `pieces`, `frames` and `woven` is pure. Source: isr-replay.md §8.
"""
