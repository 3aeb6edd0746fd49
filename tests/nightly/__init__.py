"""Long campaigns: a section per file, with a function ``run(quick, seed)`` that gives its figures as a dict."""
