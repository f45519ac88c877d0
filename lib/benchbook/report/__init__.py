"""What the rows of all machines say: tables, the costs of tasks, and the site of executed
notebooks."""
