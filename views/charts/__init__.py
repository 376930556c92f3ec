"""Charts of a study: plain data in `model`, drawn as SVG for pages and by matplotlib for files."""
