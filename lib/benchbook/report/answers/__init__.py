"""What would it cost? Tasks that a reader chooses from, and what each machine takes for them: time, money, energy."""
