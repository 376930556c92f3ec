"""The Python interface that `import hpo` offers."""
