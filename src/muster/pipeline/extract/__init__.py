"""From segments to history files and winners: what a task of the reading step does. No Spark in here."""
