"""The history behind the dashboard: counts of the last day, and the turns of the last sessions."""
