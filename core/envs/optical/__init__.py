"""Optical-network environments."""
