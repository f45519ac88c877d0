"""A point, as a notebook and its processes measure it: parameters, plan, processes, and the
notebook's interface."""
