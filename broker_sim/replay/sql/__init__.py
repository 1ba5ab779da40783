"""Questions in SQL to the Parquet files of a replay: what takes Spark longer to plan than to do."""
