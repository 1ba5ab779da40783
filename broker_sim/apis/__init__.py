"""One module per group of APIs a broker answers; `table` lists them all, and ApiVersions is built from it."""
