"""What must hold in a simulated cluster: one function for each property, named with its source."""
