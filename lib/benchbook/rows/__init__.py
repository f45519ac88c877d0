"""Rows and manifests: one schema, paths and files, packing and checking."""
