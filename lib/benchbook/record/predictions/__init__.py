"""How fast a chip trains that was not measured, with an interval, and how far off such predictions are."""
