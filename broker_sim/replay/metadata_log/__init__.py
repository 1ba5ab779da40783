"""`__cluster_metadata` of KRaft clusters, read from disk: the exact history of every ISR as rows of a trace.

    schemas   the records of Kafka 3.0 to 4.1, as a table
    decode    bytes of one record to its fields
    segments  a segment or snapshot to its whole batches, and these to records
    files     which files there are, and of which node and cluster
    inventory what of the log is there: copies, gaps, snapshots that can be used
    causes    who made a change, from its neighbours
    fold      the records of one partition to its changes
    told      changes to rows of the trace
    words     what is printed of it
    local     all of it in this process
    reading, one_log, changes, rows, ingest    the same on Spark

All but `files`, `local` and the last row is pure. Source: KIP-500, KIP-631, KIP-868, KIP-966; docs/replay-kraft.md.
"""
