"""What the broker answers: one module per group of APIs, and the table of all of them."""
