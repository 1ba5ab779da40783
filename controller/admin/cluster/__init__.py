"""The cluster as a tool sees it: the client that asks its nodes, and what can be asked."""
