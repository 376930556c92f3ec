"""All user output: text, tables, pages, charts, and the commands that print them."""
