"""All output for users: text, tables, pages, charts, and the commands that print them."""

if __name__ == "views":
    raise ImportError("import hpo.views instead, after `pip install -e .`")
