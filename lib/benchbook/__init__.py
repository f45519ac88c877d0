"""benchbook: what training a network costs, in time, energy and money.

Importing this package imports no framework: a machine needs only the one its study runs on.
"""
