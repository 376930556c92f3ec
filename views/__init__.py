"""All output for users: text, tables, pages, charts, and the commands that print them."""
