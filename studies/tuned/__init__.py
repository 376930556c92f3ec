"""Tuned configurations: records, published configurations, and studies made from them."""
