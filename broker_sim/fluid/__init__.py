"""The broker of a rehearsal: it decides and speaks as a broker does, but its data is sizes and rates, not bytes."""
