"""What `import hpo` offers, as notebooks have it."""
