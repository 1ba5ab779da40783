"""The Spark job: traces in, ISR history, windows, findings and a report out. Shares only `isr` with the broker."""
