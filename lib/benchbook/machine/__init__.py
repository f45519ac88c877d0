"""Who measures: this computer, its condition, its sensors; and facts that need no framework."""
