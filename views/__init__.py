"""Everything people see: text, tables, pages, charts, and the commands that print them."""
