"""Reports of a nightly run: HTML page, tables, charts, Markdown, JUnit XML and JSON."""
