"""`report.html`: its figures, its page, its looks."""
