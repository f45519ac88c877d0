"""Results: tables, quantities and sentences made of rows. Nothing is drawn here."""
