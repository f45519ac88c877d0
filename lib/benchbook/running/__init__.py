"""Run points: profiles, sessions, one run through papermill, Slurm."""
