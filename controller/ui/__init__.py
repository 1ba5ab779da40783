"""`kwob ui`: a page that shows a cluster, or a rehearsal, as it is, and breaks what it is told to break."""
