"""The ISR rules over one lane of a trace: row by row, and many rows at once. Pure."""
